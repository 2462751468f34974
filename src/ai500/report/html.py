from ai500.rundir import RunFolder


def write_report(run: RunFolder) -> None:
    run.report.write_text("")
