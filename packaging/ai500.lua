-- Not run by the project (docs/packages.md).
-- Lmod's module file: set `root` to the folder of a virtual environment with ai500.
help([[HPC AI500: measures, tunes and ranks AI computing systems.]])
whatis("Name: ai500")
whatis("Version: 0.2.0")
local root = "/apps/ai500/0.2.0"
prepend_path("PATH", pathJoin(root, "bin"))
