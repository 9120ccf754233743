# SPDX-License-Identifier: Apache-2.0
"""ReFrame settings of a single machine with mpirun, to try convoy_checks.py on; a cluster has settings of its own."""
site_configuration = {
    "systems": [{
        "name": "machine",
        "hostnames": [".*"],
        "partitions": [{"name": "here", "scheduler": "local", "launcher": "mpirun", "environs": ["plain"]}],
    }],
    "environments": [{"name": "plain"}],
}
