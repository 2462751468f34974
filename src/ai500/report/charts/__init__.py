"""Charts as plain data; each draws itself as SVG.

Line styles and labels carry the meaning and colour only helps, so that charts survive grey print
and colour-blind eyes. Colours and type come from the page's style sheet by class.
"""

from __future__ import annotations

from ai500.report.charts.bars import MeanBars, RangeBars, StackedBars
from ai500.report.charts.dot_chart import DotRows, Scatter
from ai500.report.charts.line_chart import LineChart
from ai500.report.charts.log_scatter import LogScatter
from ai500.report.charts.picture_chart import PictureChart
from ai500.report.charts.roofline import RooflineChart
from ai500.report.charts.timeline import Timeline
from ai500.report.charts.tree import Tree

XYChart = LineChart | DotRows | Scatter | LogScatter | Tree | RooflineChart
Chart = XYChart | MeanBars | RangeBars | StackedBars | Timeline | PictureChart
