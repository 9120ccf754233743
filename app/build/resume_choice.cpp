// SPDX-License-Identifier: Apache-2.0
#include "app/build/resume_choice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_copies.h"
#include "io/log/metrics_reader.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNothingChanged = "nothing was changed";

// The file that checkpoint.resume names, in its real folder; empty if it names none. A link in its place is kept.
std::string named_file(const std::string& resume) {
  if (std::find(kResumeNames.begin(), kResumeNames.end(), resume) != kResumeNames.end()) return "";
  const fs::path path = fs::absolute(resume).lexically_normal();
  return canonical_path(path.parent_path().string()) + "/" + path.filename().string();
}

bool is_missing(const std::string& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() == fs::file_type::not_found;
}

// What metrics.jsonl tells of the run's earlier starts.
struct Past {
  bool begun = false;
  bool applied = false;    // one of them resumed from the named file
  std::string checkpoint;  // the last one written, "PATH (step N)", since that start if there was one; empty: none
};

// `named`: as named_file() gives it.
Past read_past(const std::string& folder, const std::string& named) {
  const std::string path = folder + "/metrics.jsonl";
  errno = 0;
  std::ifstream file(path);
  Past past;
  if (!file && errno == ENOENT) return past;
  MetricsLine line;
  for (std::string text; std::getline(file, text);) {
    if (!line.parse(text)) continue;
    const std::string_view event = line.text("event");
    if (event == "start") {
      past.begun = true;
      const std::string source(line.text("resumed_from"));
      if (named.empty() || source.empty() || named_file(source) != named) continue;
      past.applied = true;
      past.checkpoint.clear();
    } else if (event == "checkpoint") {
      past.checkpoint = fmt::format("{} (step {})", line.text("path"), line.integer("step").value_or(0));
    }
  }
  if (!file.is_open() || file.bad()) fail_io("cannot read {}: {}", path, std::strerror(errno));
  return past;
}

class Chooser {
 public:
  Chooser(const Config& config, const WarnCallback& warn)
      : resume_(config.checkpoint.resume),
        folder_(run_folder(config)),
        dir_(checkpoint_folder(config)),
        copies_(copy_folder(config)),
        canonical_dir_(canonical_path(dir_)),
        named_(named_file(resume_)),
        inside_(lies_in(canonical_dir_, canonical_path(folder_))),
        warn_(warn) {}

  ResumeChoice choose() {
    choice_.record = read_run_record(folder_);
    const bool first = choice_.record.id.empty();
    if (first) past_ = read_past(folder_, named_);
    const bool begins_with_file = !named_.empty() && !is_applied(first);
    CheckpointSearch search = search_checkpoints(dir_);
    if (!begins_with_file && !(first && resume_ == "never")) look_for_copy(search);
    check_owner(search, first);
    if (begins_with_file) {
      use_named("");
    } else if (search.found) {
      resume_from(search);
    } else {
      check_none_is_lost(search, first);
      begin();
    }
    return finish();
  }

 private:
  // Whether an earlier start resumed from the named file, which may have gone since.
  bool is_applied(bool first) const {
    if (first) return past_.applied;
    const std::string& applied = choice_.record.resumed_file;
    if (applied == named_) return true;
    if (!is_missing(named_)) return false;
    // Then the reader of the config did not find it, and has not added the folder of the config.
    if (applied.ends_with("/" + fs::path(resume_).lexically_normal().string())) return true;
    fail_missing();
  }

  // Finds a valid second copy of what is damaged, cannot be read or has gone; none that is older than a file that
  // cannot be read.
  void look_for_copy(CheckpointSearch& search) const {
    if (copies_.empty() || (search.found && search.invalid.empty())) return;
    std::vector<std::string> warnings;
    const auto path =
        find_checkpoint_or_copy(dir_, copies_, [&](const std::string& text) { warnings.push_back(text); });
    if (!path || path->parent_path() != fs::path(copies_)) return;
    const auto files = list_checkpoints(dir_), copies = list_checkpoints(copies_);
    const auto copy =
        std::find_if(copies.begin(), copies.end(), [&](const auto& c) { return c.path == path->string(); });
    if (copy == copies.end() || (!search.unreadable.empty() && copy->step < files.back().step)) return;
    for (const std::string& text : warnings) warn_(text);
    search = {};
    search.found = *copy;
    search.run = examine_checkpoint(copy->path).run;
  }

  // Whether the named file is one of those that a start finds by itself.
  bool names_own_checkpoint() const {
    const auto files = list_checkpoints(dir_);
    return std::any_of(files.begin(), files.end(), [&](const CheckpointFile& file) {
      return named_ == canonical_dir_ + "/" + fs::path(file.path).filename().string();
    });
  }

  [[noreturn]] void fail_missing() const {
    fail_option("checkpoint.resume", "there is no file \"{}\" (name one that is there, or \"auto\")", resume_);
  }

  // Refuses a folder that holds checkpoints of another run, and gives a run without identity that of its checkpoints.
  void check_owner(const CheckpointSearch& search, bool first) {
    RunRecord& record = choice_.record;
    if (!search.found) {
      const bool own = inside_ || past_.begun || record.checkpoints == canonical_dir_;
      const bool any = !search.invalid.empty() || !search.unreadable.empty();
      if (any && !own) fail_unknown_owner(search);
      return;
    }
    const std::string& file = search.found->path;
    if (!search.run.empty()) {
      if (first && inside_) {
        record.id = search.run;
        choice_.notes.push_back(
            fmt::format("identity   {}, from {}: {}/run.json was missing", search.run, file, folder_));
      }
      if (record.id != search.run) {
        fail_usage(
            "{}: is a checkpoint of another run ({}), {} (a folder of checkpoints belongs to one run: {}; to start "
            "from "
            "that checkpoint all the same, name it with checkpoint.resume as well)",
            file, search.run, record.id.empty() ? "and this one has not started yet" : "this is " + record.id,
            inside_ ? "move it elsewhere" : "give this run one of its own with checkpoint.dir");
      }
      return;
    }
    const bool wanted = resume_ == "auto" || names_own_checkpoint();
    if (first && !inside_ && !past_.begun && !wanted) {
      fail_usage(
          "{}: is a checkpoint of an earlier version, maybe of another run, and this run is to start without it (a "
          "folder of checkpoints belongs to one run: give this one its own with checkpoint.dir)",
          file);
    }
    choice_.notes.push_back(
        fmt::format("identity   {} is of an earlier version and has none: taken for a checkpoint of this run", file));
  }

  [[noreturn]] void fail_unknown_owner(const CheckpointSearch& search) const {
    const std::string advice = fmt::format(
        "whose it is cannot be told, and a folder of checkpoints belongs to one run: give this one its own with "
        "checkpoint.dir; {}",
        kNothingChanged);
    if (!search.unreadable.empty()) fail("{} ({})", search.unreadable, advice);
    fail_usage("{} ({})", fmt::join(search.invalid, "; "), advice);
  }

  void use_named(const std::string& reason) {
    choice_.file = resume_;
    choice_.named = true;
    choice_.in_folder = names_own_checkpoint();
    choice_.reason = reason;
    choice_.record.resumed_file = named_;
    choice_.record.checkpoints = choice_.in_folder ? canonical_dir_ : "";  // what is there is of another past
  }

  void resume_from(const CheckpointSearch& search) {
    warn_of_skipped(search, warn_);
    choice_.file = search.found->path;
    choice_.in_folder = true;
    choice_.record.checkpoints = canonical_dir_;
    if (choice_.record.resumed_file.empty()) choice_.record.resumed_file = named_;  // with an earlier version
    if (resume_ != "auto") {
      choice_.reason = fmt::format("this run continues: checkpoint.resume = \"{}\" has been applied", resume_);
    }
  }

  // A run that has checkpoints, or had some, does not start over.
  void check_none_is_lost(const CheckpointSearch& search, bool first) {
    if (!search.unreadable.empty()) {
      std::string older;
      for (const CheckpointFile& file : search.older) older += (older.empty() ? "" : ", ") + file.path;
      fail(
          "{}; {}it is not known to be damaged, so the run neither starts over nor goes back to an older one ({}; the "
          "same command resumes once the file can be read; {})",
          search.unreadable, skipped(search), kNothingChanged,
          older.empty() ? "there is no older one" : "to go back, name an older one with checkpoint.resume: " + older);
    }
    if (!search.invalid.empty()) {
      fail_usage("{}: no checkpoint is valid, and the run does not start over by itself: {} ({}; {})", dir_,
                 fmt::join(search.invalid, "; "), kNothingChanged, start_over());
    }
    if (!first) past_ = read_past(folder_, named_);
    const std::string& recorded = choice_.record.checkpoints;
    if (past_.checkpoint.empty() && recorded.empty()) return;
    fail(
        "{}: has no checkpoint, but this run has written some: {} ({}; is the file system mounted, is checkpoint.dir "
        "the one of before? {})",
        dir_, past_.checkpoint.empty() ? "in " + recorded : "the last was " + past_.checkpoint, kNothingChanged,
        start_over());
  }

  static std::string skipped(const CheckpointSearch& search) {
    return search.invalid.empty() ? "" : fmt::format("newer ones are invalid: {}; ", fmt::join(search.invalid, "; "));
  }

  std::string start_over() const {
    return fmt::format(
        "to start over, delete {} or choose another run.name; to start from another checkpoint, name it "
        "with checkpoint.resume",
        inside_ ? folder_ : folder_ + " and " + dir_);
  }

  // The run has no checkpoint of its own yet: it begins as its config says.
  void begin() {
    if (named_.empty()) return;
    if (is_missing(named_)) fail_missing();
    use_named("named by checkpoint.resume, since this run has no checkpoint of its own yet");
  }

  ResumeChoice finish() {
    RunRecord& record = choice_.record;
    if (record.id.empty()) record.id = new_run_id();
    if (record.created.empty()) record.created = utc_time();
    return std::move(choice_);
  }

  const std::string resume_, folder_, dir_, copies_, canonical_dir_, named_;
  const bool inside_;  // the checkpoints lie in the run's folder, so they are its own
  const WarnCallback& warn_;
  Past past_;
  ResumeChoice choice_;
};

}  // namespace

ResumeChoice choose_checkpoint(const Config& config, const WarnCallback& warn) {
  return Chooser(config, warn).choose();
}

}  // namespace convoy
