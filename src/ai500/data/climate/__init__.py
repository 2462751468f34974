"""Climate data of the ExtremeWeather schema: read, indexed, checked, and written."""
