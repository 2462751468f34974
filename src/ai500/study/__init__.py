"""Studies: the papers' experiments, repeated on one's own machine (V3 §4, V2 §2, §5).

A study is a named set of points. A point is a few settings over the configuration, and one
ordinary run. What is finished is never repeated; a report, a CSV and a record come out.

    Config → StudyPlan → run folders, one a point → StudyResult → report.html, points.csv
             planning    conduct                    collect       page

One file a study: its points, its figures, its words. None of this needs torch.
"""
