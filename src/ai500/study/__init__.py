"""Studies: the papers' experiments, repeated on the user's machine (V3 §4, V2 §2, §5).

A study is a named set of points. A point is a few settings over the configuration, and one
ordinary run. Finished runs are never repeated; the output is a report, a CSV and a record.

    Config → StudyPlan → run folders, one per point → StudyResult → report.html, points.csv
             planning    run_study                    collect       page

Each study is one file with its points, figures and sentences. None of this imports torch.
"""
