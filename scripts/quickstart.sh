#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh machine to a trained network: installs what is missing, builds the program, trains a small ResNet on handwritten
# digits on 2 ranks, and says where everything is. Run again, it finds the work done and only says so.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

scripts/install_deps.sh
build release --target convoy
allow_mpi_as_root

ranks=(mpirun -n 2)
if (($(physical_cores) < 2)); then ranks+=(--oversubscribe --bind-to none); fi
config=app/configs/quickstart.toml
run=runs/quickstart
"${ranks[@]}" build/app/convoy train "$config"

checkpoint=$(ls "$run"/checkpoints/step-*.h5 | tail -n 1)
cat <<END

Everything of this run is in $run:
  config      $run/config.toml
  metrics     $run/metrics.jsonl  (one JSON object a line)
  TensorBoard $run/events.out.tfevents.*
  checkpoint  $checkpoint  (HDF5)
What next:
  evaluate    build/app/convoy eval $config --checkpoint $checkpoint
  look inside build/app/convoy inspect $checkpoint
  start over  ${ranks[*]} build/app/convoy train $config --set run.name=another
A run that was stopped or killed resumes when the same command is given again.
END
