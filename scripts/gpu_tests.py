# SPDX-License-Identifier: Apache-2.0
"""What works: what convoy finds on the machine, the test programs of the CUDA backend and of NCCL, and the first of them
under compute-sanitizer. Checks of scripts/gpu_check.py.
"""
import os
import re
import shutil
import time

from gpu_session import Failure, Skipped, ending, gpus, last_line, say

COMPARE_CASES = "*agree*"  # with the CPU, operation by operation
LONG_CASES = "*ResNet*"    # too long under a sanitizer
SKIPPED = 77


def doctor(check):
    text = check.must("convoy doctor", [check.program, "doctor"])
    lines = text.splitlines()
    check.record("gpus", gpus()[0])
    check.record("version", check.run([check.program, "--version"])[1].splitlines())
    check.record("doctor", lines)
    if shutil.which("nvidia-smi"):
        check.run(["nvidia-smi"])
    for line in lines:
        if not line.startswith("ok"):
            say(line)
    return "; ".join(gpus()[0]) or "no GPU"


def tests_named(check, pattern):
    return [test for test in check.session.tests() if re.fullmatch(pattern, test["name"])]


def backend_test(check):
    """The test of the CUDA backend: on the GPU, or in a rehearsal its kernels on the CPU."""
    wanted = "cuda_on_host" if check.session.rehearse else "cuda"
    for test in tests_named(check, wanted):
        return test
    raise Skipped(f"this build has no test {wanted} (cmake --preset {'release' if check.session.rehearse else 'cuda'})")


def summary(text):
    lines = re.findall(r"test cases:.*", text)
    return re.sub(r"\s+", " ", lines[-1]) if lines else ""


def compare(check):
    code, text = check.run(check.test(backend_test(check), f"--test-case={COMPARE_CASES}"))
    if code == SKIPPED:
        raise Skipped(last_line(text))
    if code != 0:
        raise Failure(f"{ending(code)}: {last_line(text)}")
    if not summary(text) or re.search(r"test cases:\s+0\b", summary(text)):
        raise Failure("there is no case that compares")
    return summary(text)


def run_tests(check, tests, *arguments):
    """Each of them; what failed is named."""
    for test in tests:
        start = time.monotonic()
        code, text = check.run(check.test(test, *arguments))
        result = "passed" if code == 0 else "skipped" if code == SKIPPED else f"failed: {ending(code)}: {last_line(text)}"
        seconds = round(time.monotonic() - start, 1)
        check.record(test["name"], {"result": result, "seconds": seconds, "summary": summary(text)})
        say(f"{test['name']:<28} {seconds:>6} s  {result}  {summary(text)}")
    results = {test["name"]: check.details[test["name"]]["result"] for test in tests}
    failed = [name for name, result in results.items() if result.startswith("failed")]
    if failed:
        raise Failure(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}")
    if not results:
        raise Skipped("this build has none of these tests")
    return f"{len(results)} runs, {list(results.values()).count('skipped')} skipped"


def backend(check):
    """What does not compare operations: memory, recording, training; and cuDNN's graphs."""
    figures = [run_tests(check, [backend_test(check)], f"--test-case-exclude={COMPARE_CASES}")]
    graphs = tests_named(check, "cuda_graphs")
    if graphs:
        figures.append(run_tests(check, graphs))
    return "; ".join(figures)


def nccl(check):
    return run_tests(check, tests_named(check, "parallel_nccl_.*"))


def sanitizer(check):
    path = os.environ.get("PATH", "") + ":" + os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    tool = shutil.which("compute-sanitizer", path=path)
    if not tool:
        raise Skipped("compute-sanitizer is not on this machine")
    command = check.test(backend_test(check), f"--test-case-exclude={LONG_CASES}")
    for name, share in (("memcheck", 0.6), ("racecheck", 0.6), ("initcheck", 1)):  # of the time that is left
        code, text = check.run([tool, "--tool", name, "--target-processes", "all", "--error-exitcode", "99", *command],
                               (check.left() - 15) * share)
        found = any(int(count) for count in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text))
        without_finding = {0: "clean", SKIPPED: "skipped", None: "no finding before the time was over"}
        failed = found or code not in without_finding
        check.record(name, f"failed: {ending(code)}: {last_line(text)}" if failed else without_finding[code])
        say(f"{name:<10} {check.details[name]}")
    bad = [f"{name} {result}" for name, result in check.details.items() if result.startswith("failed")]
    if bad:
        raise Failure("; ".join(bad))
    return "; ".join(f"{name} {result}" for name, result in check.details.items())
