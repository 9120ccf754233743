// SPDX-License-Identifier: Apache-2.0
//
// The parts of `convoy launch` that are pure: hosts, choices, verdicts, command lines, its record.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <vector>

#include "app/build/read_config.h"
#include "app/launch/failure.h"
#include "app/launch/job_state.h"
#include "app/launch/launcher.h"
#include "app/launch/rank_counts.h"
#include "app/launch/run_status.h"
#include "app/launch/slurm_hosts.h"
#include "app/launch/slurm_steps.h"
#include "layers/base/system_error.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

std::string any_count(int) { return ""; }
std::string even(int ranks) { return ranks % 2 == 0 ? "" : "odd"; }

HostList abc(int slots) { return {{"a", slots}, {"b", slots}, {"c", slots}}; }

std::string words(const std::optional<HostList>& hosts) { return hosts ? describe_hosts(*hosts) : "nothing"; }

}  // namespace

TEST_CASE("a hosts file as mpirun reads it") {
  const std::string text =
      "# our machines\n\n  a slots=2  # the first\nb\nc slots = 4 max_slots=8\n\td.example.org slots=1\na slots=1\n";
  CHECK(describe_hosts(parse_hosts(text, "h")) == "a:3 b:1 c:4 d.example.org:1");
  CHECK(parse_hosts("a slots=2", "h") == HostList{{"a", 2}});
  CHECK(parse_hosts(" \n# nothing\n", "h").empty());
  CHECK(describe_hosts({}) == "none");
  CHECK(join_hosts(parse_hosts("n1 slots=2\nn2\nn3\n", "h")) == "n1:2,n2:1,n3:1");
  std::string many;
  for (int i = 1; i <= 64; ++i) many += fmt::format("n{:03} slots=4\n", i);
  CHECK(describe_hosts(parse_hosts(many, "h")) == "n[001-064]:4");
  CHECK(describe_hosts(parse_hosts("n8.x\nn9.x\nn10.x\nn11.y\nm\nn1\nn2\n", "h")) ==
        "n[8-10].x:1 n11.y:1 m:1 n1:1 n2:1");
  CHECK(describe_hosts(parse_hosts("n8\nn9 slots=2\nn10\nn09\nn10a\n7\n8\n9\n", "h")) ==
        "n8:1 n9:2 n10:1 n09:1 n10a:1 [7-9]:1");
  CHECK(count_slots(abc(4)) == 12);
}

TEST_CASE("bad hosts are named with file and line") {
  const auto error = [](const std::string& text) {
    ExitCode code = ExitCode::kDone;
    const std::string message = error_of([&] { (void)parse_hosts(text, "hosts.txt"); }, &code);
    CHECK(code == ExitCode::kUsage);
    return message;
  };
  CHECK(error("a\nb slots=two\n").starts_with("hosts.txt:2: slots=two is no number of slots"));
  CHECK(error("a slots=0").starts_with("hosts.txt:1: slots=0"));
  CHECK(error("a slots=99999999999").starts_with("hosts.txt:1:"));
  CHECK(error("a slots=").starts_with("hosts.txt:1:"));
  CHECK(error("\n\na b").starts_with("hosts.txt:3: unknown word \"b\""));
  CHECK(error("a slots=4 max_slots=2").starts_with("hosts.txt:1: 4 slots, but max_slots=2"));
  CHECK(error("-n slots=1").starts_with("hosts.txt:1: \"-n\" is no host name"));
  CHECK(error("a;rm slots=1").starts_with("hosts.txt:1:"));
  CHECK(error("a\xff\n").starts_with("hosts.txt:1:"));
}

TEST_CASE("hosts are chosen whole, the used ones first") {
  CHECK(words(choose_hosts(abc(2), {}, {1, 2}, any_count)) == "a:2 b:2");
  CHECK(words(choose_hosts(abc(2), {{"c", 2}}, {1, 2}, any_count)) == "c:2 a:2");
  CHECK(words(choose_hosts(abc(2), {{"x", 2}, {"b", 2}}, {1, 1}, any_count)) == "b:2");
  CHECK(words(choose_hosts(abc(1), {}, {1, 3}, even)) == "a:1 b:1");
  CHECK(words(choose_hosts(abc(1), {}, {3, 3}, even)) == "nothing");
  CHECK(words(choose_hosts(abc(1), {}, {4, 9}, any_count)) == "nothing");
  CHECK(words(choose_hosts({}, {}, {1, 9}, any_count)) == "nothing");
  // slots that have changed count
  CHECK(words(choose_hosts({{"a", 4}}, {{"a", 2}}, {1, 1}, any_count)) == "a:4");
}

TEST_CASE("nodes that can never suit are a usage error") {
  const auto refusal = [](const HostList& usable, NodeRange nodes, int per_node, const RankProblem& problem) {
    return error_of([&] { check_nodes(usable, nodes, per_node, problem); });
  };
  CHECK(refusal(abc(1), {3, 3}, 1, even) ==
        "launch: no number of hosts from 3 to 3 suits the config; 3 ranks: odd (numbers of ranks that do: 2, 4, 6, 8, "
        "10, 12, 14, 16)");
  CHECK(refusal({{"a", 1}}, {1, 2}, 1, even).empty());  // two hosts would suit
  CHECK(refusal({{"a", 1}}, {1, 2}, 0, even).empty());  // nobody knows the slots of the second
  CHECK(!refusal({{"a", 1}}, {1, 1}, 0, even).empty());
}

TEST_CASE("the config decides which numbers of ranks suit") {
  const std::string toy = CONVOY_CONFIGS "/toy.toml";
  const RankCounts data(read_config(toy));  // batch 20
  CHECK(data.problem(1).empty());
  CHECK(data.problem(4).empty());
  CHECK(contains(data.problem(3), "20 does not divide into 3 replicas"));
  const RankCounts model(read_config(toy, {"parallel.mode=model"}));
  CHECK(model.problem(2).empty());
  CHECK(contains(model.problem(64), "the model has"));
  const RankCounts stages(read_config(toy, {"parallel.mode=pipeline", "parallel.stages=2", "parallel.microbatches=2"}));
  CHECK(stages.problem(2).empty());
  CHECK(!stages.problem(3).empty());
}

TEST_CASE("how generations end") {
  const auto kind = [](int code, int signal = 0, const char* error = "", int stop = 0) {
    return classify({{code, signal}, error, false, stop});
  };
  CHECK(kind(0) == EndKind::kDone);
  CHECK(kind(2) == EndKind::kUsage);
  CHECK(kind(75) == EndKind::kStopped);
  CHECK(kind(1, 0, "step 3: the loss is nan") == EndKind::kProgramError);
  CHECK(kind(1) == EndKind::kKilled);
  CHECK(kind(128 + SIGKILL) == EndKind::kKilled);
  CHECK(kind(128 + SIGTERM) == EndKind::kKilled);
  CHECK(kind(128 + SIGSEGV) == EndKind::kProgramError);
  CHECK(kind(128 + SIGABRT) == EndKind::kProgramError);
  CHECK(kind(128 + SIGKILL, SIGKILL, "half a message") == EndKind::kKilled);
  CHECK(kind(128 + SIGUSR2) == EndKind::kKilled);
  CHECK(classify({{1, 0}, "no space", false, 0, 0, "node7"}) == EndKind::kSystemError);
  CHECK(classify({{1, 0}, "another training", false, 0, 0, kNoHost}) == EndKind::kSystemError);
  CHECK(classify({{2, 0}, "no such file", false, 0, 0, "node7"}) == EndKind::kUsage);
  CHECK(kind(128 + SIGUSR2, 0, "", SIGUSR2) == EndKind::kStopped);
  CHECK(describe_end({{137, 0}, "", false, 0}, "mpirun") == "a rank was killed by SIGKILL");
  CHECK(describe_end({{137, 9}, "", false, 0}, "srun") == "srun was killed by SIGKILL");
  CHECK(describe_end({{137, 0}, "", false, 0, 1}, "mpirun") ==
        "a rank was killed by SIGKILL: out of memory, says the kernel (docs/errors/out_of_memory.md)");
  CHECK(describe_end({{137, 0}, "", false, 0, -1}, "mpirun") ==
        "a rank was killed by SIGKILL, possibly out of memory (docs/errors/out_of_memory.md)");
  CHECK(describe_end({{143, 0}, "", false, 0, 1}, "mpirun") == "a rank was killed by SIGTERM");
  CHECK(describe_end({{139, 0}, "", false, 0}, "mpirun") == "a rank crashed with SIGSEGV");
  CHECK(describe_end({{255, 0}, "", false, 0}, "mpirun") == "mpirun ended with exit code 255");
  CHECK(describe_end({{1, 0}, "no space", false, 0}, "mpirun") == "exit code 1: no space");
}

TEST_CASE("restarts, back-off, giving up") {
  const Failure killed{false, 40, false, false}, wrong{true, 40, false, false}, trained{false, 40, false, true};
  RestartPolicy policy(100, 0);
  std::vector<int> delays;
  for (int i = 0; i < 9; ++i) delays.push_back(policy.after(killed).delay_seconds);
  CHECK(delays == std::vector<int>{1, 2, 4, 8, 16, 32, 60, 60, 60});
  CHECK(policy.after(trained).delay_seconds == 0);
  CHECK(policy.after(killed).delay_seconds == 1);
  CHECK(policy.restarts() == 11);

  RestartPolicy few(2, 1);
  CHECK(few.after(trained).give_up.empty());
  CHECK(few.after(trained).give_up == "2 restarts (--max-restarts) are used up");
  CHECK(few.restarts() == 2);

  RestartPolicy same(100, 0);
  CHECK(same.after(wrong).give_up.empty());
  CHECK(contains(same.after(wrong).give_up, "two generations in a row failed after the checkpoint of step 40"));
  RestartPolicy mixed(100, 0);  // a kill in between, another step, or a checkpoint: all begin anew
  for (int i = 0; i < 3; ++i) {
    CHECK(mixed.after(wrong).give_up.empty());
    CHECK(mixed.after(killed).give_up.empty());
    CHECK(mixed.after(wrong).give_up.empty());
    CHECK(mixed.after({true, 41 + i, false, true}).give_up.empty());
    CHECK(mixed.after({true, 41 + i, true, true}).give_up.empty());
  }
  RestartPolicy again(100, 3);
  again.remember(wrong);
  CHECK(!again.after(wrong).give_up.empty());
}

TEST_CASE("an older checkpoint is tried once, after two failures at the newest") {
  const auto failed_at = [](std::int64_t step, bool wrote = false) { return Failure{true, step, wrote, true}; };
  RestartPolicy policy(100, 0);
  CHECK_FALSE(policy.older_may_help(failed_at(40)));
  CHECK(policy.after(failed_at(40)).give_up.empty());
  CHECK_FALSE(policy.older_may_help({true, 40, false, false, false}));  // ended before it had resumed
  CHECK_FALSE(policy.older_may_help({false, 40, false, true}));         // killed
  CHECK(policy.older_may_help(failed_at(40)));
  CHECK(policy.after(failed_at(40), true).give_up.empty());
  CHECK(policy.went_back_from() == 40);
  CHECK(policy.restarts() == 2);
  // From step 30 it comes to 40 again, writes that checkpoint, and fails as before: this is no reason to go back again.
  CHECK(policy.after(failed_at(30, true)).give_up.empty());
  CHECK(policy.after(failed_at(40)).give_up.empty());
  CHECK_FALSE(policy.older_may_help(failed_at(40)));
  CHECK(contains(policy.after(failed_at(40)).give_up, "after the checkpoint of step 40"));

  RestartPolicy older(100, 0);  // both fail: it gives up at the second
  CHECK(older.after(failed_at(40)).give_up.empty());
  CHECK(older.after(failed_at(40), true).give_up.empty());
  CHECK(older.after(failed_at(30)).give_up.empty());
  CHECK_FALSE(older.older_may_help(failed_at(30)));
  CHECK(contains(older.after(failed_at(30)).give_up, "after the checkpoint of step 30"));

  RestartPolicy later(100, 0);  // progress, then the same at a later checkpoint
  later.remember_going_back(40);
  CHECK(later.after(failed_at(50)).give_up.empty());
  CHECK(later.older_may_help(failed_at(50)));

  RestartPolicy used_up(1, 1);
  used_up.remember(failed_at(40));
  CHECK_FALSE(used_up.older_may_help(failed_at(40)));
}

TEST_CASE("kinds of mpirun, by what they say of their version") {
  CHECK(mpirun_kind("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...") == MpirunKind::kOrte);
  CHECK(mpirun_kind("mpirun (Open MPI) 5.0.7\n") == MpirunKind::kPrrte);
  CHECK(mpirun_kind("mpirun (Open MPI) 10.0.0\n") == MpirunKind::kPrrte);
  CHECK(mpirun_kind("prterun (PRRTE) 3.0.8\n") == MpirunKind::kPrrte);
  CHECK(mpirun_kind("HYDRA build details:\n    Version:                                 4.0.2\n") ==
        MpirunKind::kHydra);
  CHECK(mpirun_kind("Intel(R) MPI Library for Linux* OS, Version 2021.11\n") == MpirunKind::kHydra);
  CHECK(!mpirun_kind("mpirun: command not found"));
  CHECK(!mpirun_kind(""));
}

TEST_CASE("Hydra's options, signals and exit codes") {
  Launcher launcher;
  launcher.program = {"/opt/convoy", "train", "c.toml"};
  launcher.mpirun = {MpirunKind::kHydra, "mpiexec"};
  CHECK(launcher.command({{"a", 2}, {"b", 1}}) ==
        std::vector<std::string>{"mpiexec", "-n", "3", "-hosts", "a:2,b:1", "/opt/convoy", "train", "c.toml"});
  CHECK(launcher.probe("b") == std::vector<std::string>{"mpiexec", "-n", "1", "-hosts", "b:1", "true"});
  CHECK(launcher.passes_on(SIGUSR1));
  CHECK(launcher.passes_on(SIGTERM));
  CHECK(!launcher.passes_on(SIGUSR2));
  const auto code = [&](int hydra, bool reported = false) { return launcher.rank_status({hydra, 0}, reported).code; };
  CHECK(code(SIGKILL) == 128 + SIGKILL);
  CHECK(code(SIGSEGV) == 128 + SIGSEGV);
  CHECK(code(SIGINT) == 128 + SIGINT);  // 2, and nobody has reported a usage error
  CHECK(code(2, true) == 2);
  CHECK(code(0) == 0);
  CHECK(code(1) == 1);
  CHECK(code(75) == 75);
  CHECK(code(255) == 255);
  CHECK(launcher.rank_status({128 + SIGTERM, SIGTERM}, false).code == 128 + SIGTERM);
  CHECK(launcher.rank_status({128 + SIGTERM, SIGTERM}, false).signal == SIGTERM);
}

TEST_CASE("signals and exit codes of Open MPI's mpirun and of srun") {
  Launcher prrte, srun;
  prrte.mpirun.kind = MpirunKind::kPrrte;
  srun.kind = LauncherKind::kSrun;
  for (const Launcher& launcher : {Launcher{}, prrte, srun}) {
    CHECK(launcher.passes_on(SIGUSR1));
    CHECK(launcher.passes_on(SIGUSR2));
    CHECK(!launcher.passes_on(SIGTERM));
    CHECK(!launcher.passes_on(SIGINT));
    CHECK(launcher.rank_status({9, 0}, false).code == 9);
    CHECK(launcher.rank_status({128 + 9, 0}, false).code == 128 + 9);
  }
}

TEST_CASE("command lines of the launchers") {
  Launcher launcher;
  launcher.arguments = {"--bind-to", "none"};
  launcher.program = {"/opt/convoy", "train", "a b.toml"};
  CHECK(launcher.command({{"a", 2}, {"b", 1}}) == std::vector<std::string>{"mpirun", "-n", "3", "--host", "a:2,b:1",
                                                                           "-x", "CONVOY_ERROR_FILE", "--bind-to",
                                                                           "none", "/opt/convoy", "train", "a b.toml"});
  CHECK(launcher.probe("b") ==
        std::vector<std::string>{"mpirun", "-n", "1", "--host", "b:1", "--bind-to", "none", "true"});
  launcher.kind = LauncherKind::kSrun;
  ::setenv("SLURM_CPUS_PER_TASK", "3", 1);
  const auto words = launcher.command({{"a", 2}, {"b", 2}});
  ::unsetenv("SLURM_CPUS_PER_TASK");
  CHECK(words == std::vector<std::string>{"srun", "--job-name=" + slurm_step_name(), "--mpi=pmix", "--nodes=2",
                                          "--nodelist=a,b", "--ntasks=4", "--ntasks-per-node=2", "--kill-on-bad-exit=1",
                                          "--cpus-per-task=3", "--bind-to", "none", "/opt/convoy", "train",
                                          "a b.toml"});
  CHECK(contains(error_of([&] { (void)launcher.command({{"a", 2}, {"b", 1}}); }), "a:2 b:1"));
  CHECK(split_command("--a 'b c' \"d\"e  f", "x") == std::vector<std::string>{"--a", "b c", "de", "f"});
  CHECK(split_command("  ", "x").empty());
  CHECK(contains(error_of([] { (void)split_command("a 'b", "--launcher-args"); }), "--launcher-args: a quote"));
}

TEST_CASE("what Slurm says of steps") {
  CHECK(steps_named("7.0 convoy-12\n7.batch batch\n7.1 convoy-123\n7.2 convoy-12\n", "convoy-12") ==
        std::vector<std::string>{"7.0", "7.2"});
  CHECK(steps_named("", "convoy-12").empty());
  CHECK(steps_named("7.0\n", "convoy-12").empty());
}

TEST_CASE("what Slurm says of nodes") {
  CHECK(parse_tasks_per_node("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(parse_tasks_per_node("4") == std::vector<int>{4});
  for (const char* text : {"", "x", "2(", "2(x", "2(x3", "0", "-1", "2(x0)", "2(x99999999)"}) {
    CHECK(parse_tasks_per_node(text).empty());
  }
  CHECK(down_nodes("n1 allocated\nn2 down*\nn3 mixed*\nn4 draining\nn5 DOWN\nn6 idle\n") ==
        std::vector<std::string>{"n2", "n3", "n5"});
}

TEST_CASE("programs: exit codes, output, limits") {
  const Captured echo = capture({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, std::chrono::seconds(20));
  CHECK(echo.output == "out\n");
  CHECK(echo.errors == "err\n");
  CHECK(echo.status.code == 3);
  const Captured killed = capture({"/bin/sh", "-c", "kill -9 $$"}, std::chrono::seconds(20));
  CHECK(killed.status.code == 137);
  CHECK(killed.status.signal == SIGKILL);
  CHECK(capture({"/nowhere/at/all"}, std::chrono::seconds(20)).status.code == 127);
  // its grandchild holds the pipe and must go too
  const Captured slow = capture({"/bin/sh", "-c", "sleep 50 & sleep 50"}, std::chrono::milliseconds(200));
  CHECK(slow.timed_out);
}

TEST_CASE("the state file keeps everything, and refuses what is none") {
  const TemporaryFolder folder;
  const std::string path = folder / "state.json";
  CHECK(read_job_state(path).generations.empty());
  JobState state;
  state.status = JobStatus::kStopped;
  state.exit_code = 75;
  state.generation = 2;
  state.restarts = 1;
  state.leader = "a 123";
  state.generations = {{1, 2, "a:2", "start", "s", "e", 0.0, 0, 40, 0, "killed \xff", true},
                       {2, 4, "a:2 b:2", "hosts", "s2", "", 1.5, 40, 80, 1, "", false}};
  write_job_state(path, state);
  const JobState read = read_job_state(path);
  CHECK(read.status == JobStatus::kStopped);
  CHECK(read.exit_code == 75);
  CHECK(read.generation == 2);
  CHECK(read.restarts == 1);
  CHECK(read.leader == "a 123");
  REQUIRE(read.generations.size() == 2);
  CHECK(read.generations[0].program_error);
  CHECK(read.generations[1].ranks == 4);
  CHECK(read.generations[1].hosts == "a:2 b:2");
  CHECK(read.generations[1].seconds_lost == 1.5);
  CHECK(read.generations[1].step_at_start == 40);
  CHECK(read.generations[1].starts_before == 1);
  for (const std::string text : {"", "{", "[]", "{\"status\":\"lost\"}", "{\"status\":\"done\",\"exit_code\":\"a\"}"}) {
    write_text(path, text);
    CHECK(contains(error_of([&] { (void)read_job_state(path); }), path));
  }
}

TEST_CASE("progress is what a generation adds to the metrics") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string old = "{\"event\":\"start\",\"step\":0}\n{\"event\":\"step\",\"step\":1}\n";
  RunStatus progress(folder.path(), folder / "checkpoints");
  progress.begin();  // no file yet
  progress.poll();
  CHECK(!progress.start_step());
  write_text(path, old);
  progress.poll();
  CHECK(progress.start_step() == 0);
  CHECK(progress.first_step_at());

  progress.begin();
  progress.poll();
  CHECK(!progress.start_step());
  CHECK(!progress.first_step_at());
  // A trainer that resumes puts a copy in place, then appends; a line may be there by half.
  write_text(path + ".new", old);
  std::filesystem::rename(path + ".new", path);
  progress.poll();
  CHECK(!progress.start_step());
  const std::string start = old + "no json {\n{\"event\":\"start\",\"step\":1}\n";
  write_text(path + ".new", start + "{\"event\":\"step\",");
  std::filesystem::rename(path + ".new", path);
  progress.poll();
  CHECK(progress.start_step() == 1);
  CHECK(!progress.first_step_at());
  std::ofstream(path, std::ios::app) << "\"step\":2}\n";
  progress.poll();
  CHECK(progress.first_step_at());
  CHECK(progress.starts_before() == 1);
  CHECK(!progress.stopped_early());
  std::ofstream(path, std::ios::app) << "{\"event\":\"end\",\"reason\":\"signal\",\"step\":2}\n";
  progress.poll();
  CHECK(progress.stopped_early());
  CHECK(progress.newest_checkpoint() == 0);
  RunStatus next_launch(folder.path(), folder / "checkpoints");  // after this one was killed
  next_launch.take_up(1);
  CHECK(next_launch.start_step() == 1);
  RunStatus too_early(folder.path(), folder / "checkpoints");  // the trainer had not begun
  too_early.take_up(2);
  CHECK(!too_early.start_step());
  std::filesystem::create_directory(folder / "checkpoints");
  write_text(folder / "checkpoints/step-00000012.h5", "");
  write_text(folder / "checkpoints/step-00000020.h5.tmp", "");
  CHECK(progress.newest_checkpoint() == 12);
}
