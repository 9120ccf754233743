// SPDX-License-Identifier: Apache-2.0
//
// Which checkpoint a start resumes from, for each combination of what is in the run folder, what is in the folder of
// checkpoints, and checkpoint.resume.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/build/resume_choice.h"
#include "io/checkpoint/checkpoint.h"
#include "layers/base/error.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
namespace fs = std::filesystem;

namespace {

/// A run "run" in a temporary folder, as a start finds it.
class Start {
 public:
  explicit Start(const std::string& dir = "") {
    config_.run.dir = folder_ / "runs";
    config_.run.name = "run";
    if (!dir.empty()) config_.checkpoint.dir = folder_ / dir;
    fs::create_directories(run());
    fs::create_directories(checkpoints());
  }
  [[nodiscard]] std::string run() const { return run_folder(config_); }
  [[nodiscard]] std::string checkpoints() const { return checkpoint_folder(config_); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string step(std::int64_t step) const { return checkpoint_path(checkpoints(), step); }

  Start& has_record(const RunRecord& record) {
    write_run_record(run(), record);
    return *this;
  }
  Start& has_checkpoint(std::int64_t step, const std::string& identity) {
    write(this->step(step), step, identity);
    return *this;
  }
  Start& has_metrics(const std::string& lines) {
    write_text(run() + "/metrics.jsonl", lines);
    return *this;
  }
  static void write(const std::string& path, std::int64_t step, const std::string& identity) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.run = identity;
    write_checkpoint(path, checkpoint);
  }

  ResumeChoice choice(const std::string& resume) {
    config_.checkpoint.resume = resume;
    warnings.clear();
    return choose_checkpoint(config_, [this](const std::string& text) { warnings.push_back(text); });
  }
  /// The message of the Error, and its exit code.
  std::pair<std::string, int> refusal(const std::string& resume) {
    ExitCode code{};
    const std::string text = error_of([&] { (void)choice(resume); }, &code);
    return {text, text.empty() ? 0 : static_cast<int>(code)};
  }

  std::vector<std::string> warnings;

 private:
  TemporaryFolder folder_;
  Config config_;
};

void check_refused(Start& start, const std::string& resume, int code, const std::string& words) {
  const auto [text, actual] = start.refusal(resume);
  CHECK_MESSAGE(contains(text, words), resume << ": " << text);
  CHECK_MESSAGE(actual == code, resume << ": " << text);
}

}  // namespace

TEST_CASE("identities are random UUIDs") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string id = new_run_id();
    REQUIRE(id.size() == 36);
    for (std::size_t at = 0; at < id.size(); ++at) {
      const bool dash = at == 8 || at == 13 || at == 18 || at == 23;
      REQUIRE((dash ? id[at] == '-' : contains("0123456789abcdef", std::string(1, id[at]))));
    }
    CHECK(id[14] == '4');
    CHECK(contains("89ab", std::string(1, id[19])));
    seen.insert(id);
  }
  CHECK(seen.size() == 100);
}

TEST_CASE("the record of a run comes back") {
  const TemporaryFolder folder;
  CHECK(read_run_record(folder.path()) == RunRecord());
  CHECK(!has_run_record(folder.path()));
  const RunRecord record{"a", "2026-01-01T00:00:00Z", "/x/\"y\".h5", "/checkpoints"};
  write_run_record(folder.path(), record);
  CHECK(read_run_record(folder.path()) == record);
  CHECK(has_run_record(folder.path()));
}

TEST_CASE("a first start begins as the config says") {
  Start start;
  for (const char* resume : {"auto", "never"}) {
    const ResumeChoice choice = start.choice(resume);
    CHECK(choice.file.empty());
    CHECK(choice.record.id.size() == 36);
    CHECK(choice.record.created.size() == 20);
    CHECK(choice.record.resumed_file.empty());
    CHECK(choice.record.checkpoints.empty());
  }
  const std::string base = start.file("base.h5");
  Start::write(base, 7, "other");
  const ResumeChoice choice = start.choice(base);
  CHECK(choice.file == base);
  CHECK(choice.named);
  CHECK(!choice.in_folder);
  CHECK(choice.record.id.size() == 36);
  CHECK(choice.record.resumed_file == canonical_path(base));
}

TEST_CASE("a run continues whatever the config says") {
  Start start;
  const std::string base = start.file("base.h5");
  start.has_record({"me", "then", canonical_path(base), ""}).has_checkpoint(10, "me").has_checkpoint(20, "me");
  for (const std::string& resume : {std::string("auto"), std::string("never"), base}) {
    const ResumeChoice choice = start.choice(resume);  // base.h5 has gone
    CHECK(choice.file == start.step(20));
    CHECK(!choice.named);
    CHECK(choice.in_folder);
    CHECK(choice.record == RunRecord{"me", "then", canonical_path(base), canonical_path(start.checkpoints())});
    CHECK(choice.reason.empty() == (resume == "auto"));
  }
  CHECK(start.choice("base.h5").file == start.step(20));  // beside the config, where nothing is looked for any more
  check_refused(start, "ase.h5", 2, "checkpoint.resume: there is no file \"ase.h5\"");
  check_refused(start, start.file("no.h5"), 2, "checkpoint.resume: there is no file");
}

TEST_CASE("a file that was not named before is used once") {
  Start start;
  const std::string base = start.file("base.h5");
  Start::write(base, 7, "other");
  start.has_record({"me", "then", "", ""}).has_checkpoint(10, "me").has_checkpoint(20, "me");
  const ResumeChoice elsewhere = start.choice(base);
  CHECK(elsewhere.file == base);
  CHECK(elsewhere.named);
  CHECK(!elsewhere.in_folder);
  CHECK(elsewhere.record == RunRecord{"me", "then", canonical_path(base), ""});
  const ResumeChoice back = start.choice(start.step(10));
  CHECK(back.named);
  CHECK(back.in_folder);
  CHECK(back.record.checkpoints == canonical_path(start.checkpoints()));
  start.has_record(back.record);
  CHECK(start.choice(start.step(10)).file == start.step(20));
  CHECK(start.choice(start.checkpoints() + "/../checkpoints/step-00000010.h5").file == start.step(20));
  // One that had been set aside is of another past than those that are there.
  Start::write(start.step(30) + ".superseded", 30, "me");
  CHECK(!start.choice(start.step(30) + ".superseded").in_folder);
}

TEST_CASE("a named file is used again until the run has a checkpoint of its own") {
  Start start;
  const std::string base = start.file("base.h5");
  Start::write(base, 7, "other");
  start.has_record({"me", "then", canonical_path(base), ""});
  // Checkpoints before the start from that file are of another past, and were set aside.
  const std::string before = "{\"event\":\"checkpoint\",\"step\":5,\"path\":\"a\"}\n";
  const std::string begun = "{\"event\":\"start\",\"step\":7,\"resumed_from\":\"" + base + "\"}\n";
  start.has_metrics(before + begun);
  const ResumeChoice choice = start.choice(base);
  CHECK(choice.file == base);
  CHECK(choice.named);
  CHECK(contains(choice.reason, "no checkpoint of its own yet"));
  start.has_metrics(before + begun + before);
  check_refused(start, base, 1, "has no checkpoint, but this run has written some: the last was a (step 5)");
}

TEST_CASE("a run that had checkpoints does not start over") {
  Start start;
  start.has_record({"me", "then", "", "/gone"});
  for (const char* resume : {"auto", "never"}) {
    check_refused(start, resume, 1, "has no checkpoint, but this run has written some: in /gone");
  }
  start.has_record({"me", "then", "", ""});
  CHECK(start.choice("auto").file.empty());
  start.has_metrics("{\"event\":\"start\"}\n{\"event\":\"checkpoint\",\"step\":5,\"path\":\"a\"}\n");
  check_refused(start, "auto", 1, "the last was a (step 5)");
  fs::remove(start.run() + "/run.json");
  check_refused(start, "never", 1, "the last was a (step 5)");
  // Nor is what may tell so taken for nothing.
  fs::remove(start.run() + "/metrics.jsonl");
  fs::create_directory(start.run() + "/metrics.jsonl");
  check_refused(start, "auto", 1, "cannot read");
}

TEST_CASE("damaged checkpoints are skipped, and unreadable ones are not") {
  Start start;
  start.has_record({"me", "then", "", ""}).has_checkpoint(10, "me").has_checkpoint(20, "me");
  write_text(start.step(30), "x");
  CHECK(start.choice("never").file == start.step(20));
  REQUIRE(start.warnings.size() == 1);
  CHECK(contains(start.warnings[0], start.step(30)));
  fs::remove(start.step(20));
  fs::create_directory(start.step(20));
  check_refused(start, "auto", 1, "name an older one with checkpoint.resume: " + start.step(10));
  check_refused(start, "auto", 1, "newer ones are invalid: " + start.step(30));
  CHECK(start.choice(start.step(10)).file == start.step(10));
  fs::remove(start.step(20));
  write_text(start.step(10), "x");
  check_refused(start, "auto", 2, "no checkpoint is valid, and the run does not start over by itself");
}

TEST_CASE("checkpoints of another run are refused, in the run's folder and elsewhere") {
  for (const char* dir : {"", "shared"}) {
    for (const bool started : {true, false}) {
      if (dir[0] == '\0' && !started) continue;  // it takes their identity, below
      Start start(dir);
      start.has_checkpoint(10, "other");
      if (started) start.has_record({"me", "then", "", ""});
      const std::string base = start.file("base.h5");
      Start::write(base, 7, "other");
      for (const std::string& resume : {std::string("auto"), std::string("never"), base, start.step(10)}) {
        check_refused(start, resume, 2, start.step(10) + ": is a checkpoint of another run (other)");
      }
    }
  }
  Start start;
  start.has_checkpoint(10, "other");
  const ResumeChoice choice = start.choice("never");
  CHECK(choice.file == start.step(10));
  CHECK(choice.record.id == "other");
  CHECK(choice.notes.size() == 1);
}

TEST_CASE("a folder whose owner cannot be told is left alone") {
  Start start("shared");
  write_text(start.step(10), "x");
  check_refused(start, "auto", 2, "whose it is cannot be told");
  const std::string base = start.file("base.h5");
  Start::write(base, 7, "other");
  check_refused(start, base, 2, "whose it is cannot be told");
  start.has_record({"me", "then", "", canonical_path(start.checkpoints())});
  CHECK(start.choice(base).file == base);
  fs::remove(start.run() + "/run.json");
  fs::remove(start.step(10));
  fs::create_directory(start.step(10));
  check_refused(start, "auto", 1, "whose it is cannot be told");
}

TEST_CASE("checkpoints of an earlier version are adopted with a note") {
  for (const char* dir : {"", "shared"}) {
    Start start(dir);
    start.has_checkpoint(10, "");
    const ResumeChoice choice = start.choice("auto");
    CHECK(choice.file == start.step(10));
    CHECK(choice.record.id.size() == 36);
    REQUIRE(choice.notes.size() == 1);
    CHECK(contains(choice.notes[0], "is of an earlier version and has none"));
    // A first start that is not to resume, and a folder outside: it may be that of another run.
    if (dir[0] != '\0') check_refused(start, "never", 2, "maybe of another run");
    start.has_metrics("{\"event\":\"start\",\"step\":0}\n");
    CHECK(start.choice("never").file == start.step(10));
    CHECK(start.choice(start.step(10)).named);
    const std::string base = start.file("base.h5");
    Start::write(base, 7, "");
    CHECK(start.choice(base).file == base);
    start.has_metrics("{\"event\":\"start\",\"step\":7,\"resumed_from\":\"" + base + "\"}\n");
    CHECK(start.choice(base).file == start.step(10));  // that version began from it
    CHECK(start.choice(base).record.resumed_file == canonical_path(base));
  }
}
