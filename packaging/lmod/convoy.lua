-- SPDX-License-Identifier: Apache-2.0
--
-- Environment module of convoy for Lmod. `cmake --install` puts it to share/convoy/modulefiles/convoy/VERSION.lua, and it finds
-- the installation from there:
--   module use PREFIX/share/convoy/modulefiles && module load convoy
-- Copied elsewhere it needs CONVOY_PREFIX in place of the computed folder.

local folder = myFileName():match("^(.*)/share/convoy/modulefiles/convoy/[^/]*$")
local prefix = folder or os.getenv("CONVOY_PREFIX") or ""
if prefix == "" then
  LmodError("convoy: this modulefile is not in PREFIX/share/convoy/modulefiles/convoy (set CONVOY_PREFIX)")
end

help([[convoy trains neural networks from one TOML file, on one rank or on many under MPI.
  mpirun -n 2 convoy train quickstart     trains an example
  sbatch $CONVOY_ROOT/share/convoy/slurm/train.sbatch quickstart
  man convoy; docs in $CONVOY_ROOT/share/doc/convoy]])
whatis("Name: convoy")
whatis("Version: " .. myModuleVersion())
whatis("Description: trains neural networks on one machine or on many with MPI")

-- ---- your site: the modules of the libraries that convoy was built with
-- depends_on("openmpi", "hdf5")
-- ----

conflict("convoy")
setenv("CONVOY_ROOT", prefix)
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
append_path("MANPATH", "") -- and the system's pages
-- Completion: bash-completion and fish look here; zsh in FPATH.
prepend_path("XDG_DATA_DIRS", pathJoin(prefix, "share"))
if mode() == "load" and (os.getenv("XDG_DATA_DIRS") or "") == "" then
  append_path("XDG_DATA_DIRS", "/usr/local/share:/usr/share") -- what it means when it is not set
end
prepend_path("FPATH", pathJoin(prefix, "share/zsh/site-functions"))
