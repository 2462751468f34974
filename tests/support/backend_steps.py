"""Steps of a framework's backend in its own interpreter, for comparison with PyTorch.

`python backend_steps.py FRAMEWORK INPUT.npz OUTPUT.npz`: INPUT has the weights (`weights.NAME`), a
batch per step (`fields.NAME`, `draws`, the steps first), `rates`, and as JSON in `settings`
workload, class, model, input shape, precision, type and hyper-parameters. OUTPUT gets `losses`, the
state after each step (`STEP.NAME`), predictions for the first batch, and the trace as JSON.
"""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

START = Path(__file__).resolve().parents[2] / "src/ai500/frameworks/start_worker.py"


def main() -> None:
    spec = importlib.util.spec_from_file_location("start_worker", START)
    start_worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start_worker)
    start_worker.import_ai500()
    import numpy as np

    from ai500.frameworks.backend import Setting
    from ai500.operations.graph import IDENTITY_BATCH, graph_sha256
    from ai500.train.worker import Rank
    from ai500.workloads.models.resnet_layers import ResNet
    from ai500.workloads.protocol import load_workload

    framework, source, target = sys.argv[1:]
    inputs = dict(np.load(source))
    settings = json.loads(str(inputs["settings"]))
    classes = load_workload(settings["workload"]).problem_classes
    problem_class = dataclasses.replace(
        classes[settings["class"]], input_shape=tuple(settings["input_shape"])
    )
    hyper = dataclasses.replace(
        problem_class.reference,
        precision=settings["precision"],
        batch_size=len(inputs["draws"][0]),
        **settings["hyperparameters"],
    )
    module = importlib.import_module(f"ai500.frameworks.{framework}_backend")
    backend = module.make_backend(
        Setting(
            problem_class=problem_class,
            hyperparameters=hyper,
            weights={
                name.removeprefix("weights."): array
                for name, array in inputs.items()
                if name.startswith("weights.")
            },
            rank=Rank(0, 0, 1, 1),
            device="cpu",
            threads=1,
            dtype=settings["dtype"],
            other_model=ResNet(**settings["model"]) if settings["model"] else None,
            workload=settings["workload"],
        )
    )
    results = {}
    losses = []
    fields = {
        name.removeprefix("fields."): array
        for name, array in inputs.items()
        if name.startswith("fields.")
    }
    for step, rate in enumerate(inputs["rates"]):
        batch = {name: array[step] for name, array in fields.items()}
        placed = backend.place(batch, inputs["draws"][step])
        losses.append(float(backend.train_step(placed, learning_rate=float(rate))))
        results |= {f"{step}.{name}": array for name, array in backend.state().items()}
    results["losses"] = np.array(losses)
    results["predictions"] = backend.predict({name: array[0] for name, array in fields.items()})
    for batch in (IDENTITY_BATCH, len(inputs["draws"][0])):
        trace = backend.trace(batch=batch)
        results[f"graph_sha256.{batch}"] = np.array(graph_sha256(trace))
    results["trace"] = np.array(json.dumps(dataclasses.asdict(trace)))
    results["described"] = np.array(json.dumps(dataclasses.asdict(backend.describe())))
    results["modules"] = np.array(json.dumps(sorted(sys.modules)))
    np.savez(target, **results)


if __name__ == "__main__":
    main()
