# SPDX-License-Identifier: Apache-2.0
"""What all Python tests share: the options that name the programs under test, a folder for each test, and the exit code
77 when every test was skipped (ctest's SKIP_RETURN_CODE).

    /usr/bin/python3 -m pytest tests/app/behaviour/test_resume.py -k finished_run
"""
import os
import shutil

import pytest

import programs

SKIPPED = 77

# Helper modules show the values in their asserts, as test modules do.
pytest.register_assert_rewrite("behaviour", "launching", "stopping", "packing", "interop", "reference", "jpegs", "jobs")


def pytest_addoption(parser):
    group = parser.getgroup("convoy")
    group.addoption("--build", help="the build folder (default: build)")
    group.addoption("--convoy", help="the program (default: app/convoy in the build folder)")
    group.addoption("--digits", help="the handwritten digits (default: app/configs/digits.h5)")
    group.addoption("--pytorch-itself", action="store_true", help="compare PyTorch with itself (interop/test_training.py)")
    group.addoption("--photographs", help="a folder of class folders of JPEGs (interop/test_torchvision_images.py)")
    group.addoption("--remove-passed", action="store_true", help="remove the tests' files (--basetemp) if all have passed")
    group.addoption("--mpirun", help="the MPI launcher (default: mpirun on PATH)")


def pytest_configure(config):
    programs.configure(*(config.getoption(name) for name in ("--build", "--convoy", "--digits", "--mpirun")))


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    ran = any(reporter.stats.get(outcome) for outcome in ("passed", "failed", "error"))
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not ran and reporter.stats.get("skipped"):
        session.exitstatus = SKIPPED
    if exitstatus == pytest.ExitCode.OK and session.config.getoption("remove_passed"):
        shutil.rmtree(session.config.getoption("basetemp"), ignore_errors=True)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Each test runs in an empty folder of its own, which stays when it ends (--basetemp says where)."""
    monkeypatch.chdir(tmp_path)
