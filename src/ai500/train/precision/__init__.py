"""Training precision by name (V3 Table 2). FP32 is the reference; the others are options.

| name       | products (convolution, linear)             | activations | weights | loss scaling |
|------------|--------------------------------------------|-------------|---------|--------------|
| fp32       | IEEE FP32                                  | FP32        | FP32    | no           |
| tf32       | TF32 in tensor cores                       | FP32        | FP32    | no           |
| mixed-bf16 | BF16 by torch's autocast                   | autocast's  | FP32    | no           |
| mixed-fp16 | FP16 by torch's autocast                   | autocast's  | FP32    | yes          |
| fp16       | FP16                                       | FP16, all   | FP32    | yes          |
| fp8        | linear, 1×1: e4m3, e5m2; others BF16       | BF16        | FP32    | no           |
| int8       | INT8 → INT32, forward and backward         | FP32        | FP32    | no           |

Weights are what the optimizer updates: FP32 master copies, rounded when a layer uses them. Batch
norm's parameters and statistics are FP32 in every precision. mixed-fp16 leaves to autocast what is
safe in FP16 (it keeps softmax, losses, layer norm and sums in FP32), fp16 keeps nothing.
"""

from ai500.records.precision import PRECISIONS
from ai500.train.precision.modes import make

__all__ = ["PRECISIONS", "make"]
