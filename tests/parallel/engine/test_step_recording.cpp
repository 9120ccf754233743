// SPDX-License-Identifier: Apache-2.0
//
// Which steps run plainly, which are recorded and which replayed.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "parallel/engine/step_recording.h"

#include <doctest/doctest.h>

#include "layers/base/error.h"

namespace convoy {

namespace {

// What happened, in words: a recorder that notes instead of recording.
struct Notes {
  std::string log;

  class Work final : public RecordedWork {
   public:
    Work(std::string& log, std::string name) : log_(log), name_(std::move(name)) {}
    void replay() override { log_ += "replay " + name_ + "; "; }

   private:
    std::string& log_;
    std::string name_;
  };

  StepRecording::Record recorder() {
    return [this](const std::function<void()>& body) {
      log += "record ";
      const std::size_t before = log.size();
      body();
      return std::make_unique<Work>(log, log.substr(before, 1));
    };
  }
  std::function<void()> step(const std::string& name) {
    return [this, name] { log += name + "; "; };
  }
};

}  // namespace

TEST_CASE("the first step of a kind runs, the second is recorded, all from then on are replays") {
  Notes notes;
  StepRecording recording(notes.recorder());
  for (int i = 0; i < 4; ++i) recording.run({8, 1}, notes.step("a"));
  CHECK(notes.log == "a; record a; replay a; replay a; replay a; ");
  notes.log.clear();
  recording.run({4, 1}, notes.step("b"));  // another batch size
  recording.run({8, 1}, notes.step("a"));
  recording.run({4, 1}, notes.step("b"));
  recording.run({8, 2}, notes.step("c"));  // another factor
  CHECK(notes.log == "b; replay a; record b; replay b; c; ");
}

TEST_CASE("without a recorder, or with one that cannot, every step runs plainly and once") {
  Notes notes;
  StepRecording none({});
  CHECK_FALSE(none.enabled());
  for (int i = 0; i < 3; ++i) none.run({1}, notes.step("a"));
  CHECK(notes.log == "a; a; a; ");
  notes.log.clear();
  int asked = 0;
  StepRecording cannot([&](const std::function<void()>&) {
    ++asked;
    return nullptr;
  });
  for (int i = 0; i < 4; ++i) cannot.run({1}, notes.step("a"));
  CHECK(notes.log == "a; a; a; a; ");
  CHECK(asked == 1);
  CHECK_FALSE(cannot.enabled());
}

TEST_CASE("many kinds do not pile up, and a step that fails can be tried again") {
  Notes notes;
  StepRecording recording(notes.recorder());
  for (int kind = 0; kind < 20; ++kind) recording.run({static_cast<double>(kind)}, notes.step("a"));
  notes.log.clear();
  recording.run({19}, notes.step("z"));
  CHECK(notes.log == "record z; replay z; ");
  notes.log.clear();
  CHECK_THROWS_AS(recording.run({50}, [] { fail("no"); }), Error);
  recording.run({50}, notes.step("a"));
  CHECK(notes.log == "a; ");
}

}  // namespace convoy
