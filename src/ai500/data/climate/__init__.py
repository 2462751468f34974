"""Climate data of the ExtremeWeather schema: reading, indexing, checking."""
