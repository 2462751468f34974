"""Object detection in plain torch: Faster R-CNN, its parts, its quality measure and box fusion.

Boxes are ymin, xmin, ymax, xmax in pixels, as in ExtremeWeather's labels. Labels are [N, 15, 5]
with the class last, predictions [N, D, 6] with score and class last; rows of −1 are padding. All
shapes are fixed; the reasons are in docs/adr/0005-faster-rcnn-in-plain-torch.md.
"""
