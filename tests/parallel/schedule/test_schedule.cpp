// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "layers/base/error.h"
#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/simulator.h"
#include "tests/parallel/schedule/schedule_text.h"

namespace convoy {

namespace {

// P stages, M microbatches, C chunks.
struct Numbers {
  int stages, microbatches, chunks;
};

void for_all_numbers(const std::function<void(const Numbers&)>& visit) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 32; ++microbatches) {
      for (int chunks = 1; chunks <= 4; ++chunks) visit({stages, microbatches, chunks});
    }
  }
}

bool suits(std::string_view name, const Numbers& n) {
  if (name == "one_stage") return n.chunks == 1 && n.stages == 1;
  if (name == "model") return n.chunks == 1 && n.microbatches == 1;
  if (name == "interleaved") return n.chunks >= 2 && n.microbatches % n.stages == 0;
  return n.chunks == (name == "zb_v" ? 2 : 1);
}

int most_in_flight(std::string_view name, const Numbers& n, int stage) {
  if (name == "one_stage" || name == "model") return 1;
  if (name == "gpipe") return n.microbatches;
  if (name == "1f1b") return std::min(n.stages - stage, n.microbatches);
  if (name == "zero_bubble") return std::min(n.stages, n.microbatches);
  if (name == "zb_v") return std::min(2 * n.stages, 2 * n.microbatches);
  const int warm_up = 2 * (n.stages - stage - 1) + (n.chunks - 1) * n.stages;  // Megatron-LM's
  return std::min(warm_up + 1, n.microbatches * n.chunks);
}

// In units of a forward, or of half a backward, of one chunk: (P - 1)(F + B) and, of ZB-H1, (P - 1)(F + I - W). The
// papers ask for M >= P (ZB-H1) and M >= 2P (ZB-V); what holds for fewer, and for ZB-V at 2P - 1 already, was found by
// simulation.
int bubble(std::string_view name, const Numbers& n) {
  if (name == "one_stage") return 0;
  if (name == "zero_bubble") return n.stages - 1 + std::max(0, n.stages - n.microbatches);
  if (name == "zb_v") return 2 * std::max(0, 2 * n.stages - 1 - n.microbatches);
  return 3 * (n.stages - 1);
}

std::string usage_error(std::string_view name, int stages, int microbatches, int chunks) {
  try {
    (void)make_schedule(name, stages, microbatches, chunks);
  } catch (const Error& error) {
    return error.code() == ExitCode::kUsage ? error.what() : std::string("not a usage error: ") + error.what();
  }
  return "no error";
}

std::string text_of(std::string_view name, int stages, int microbatches, int chunks, std::size_t stage) {
  return text_of(make_schedule(name, stages, microbatches, chunks).actions.at(stage));
}

// What is wrong with the schedule of that name; nothing, hopefully.
std::string fault(std::string_view name, const Numbers& n) {
  const Schedule schedule = make_schedule(name, n.stages, n.microbatches, n.chunks);
  check_schedule(schedule);
  check_forward_schedule(forward_only(schedule));
  for (int stage = 0; stage < n.stages; ++stage) {
    const int most = activations_in_flight(schedule, stage);
    const int wanted = most_in_flight(name, n, stage);
    const bool bound = name == "zb_v" && n.microbatches < 2 * n.stages - 1;  // a longer one with gaps: some hold less
    if (bound ? most > wanted : most != wanted) return fmt::format("{} in flight, not {}", most, wanted);
  }
  const Timeline timeline = simulate(schedule, unit_costs(schedule));
  const int idle = bubble(name, n);
  if (timeline.bubble() != idle) return fmt::format("bubble {}, not {}", timeline.bubble(), idle);
  const int work = 3 * n.microbatches * n.chunks;
  // In a V the first stage starts first, but the others end after it.
  const double seconds = name == "zb_v" ? timeline.stages[0].back().end : timeline.seconds;
  if (seconds != work + timeline.idle[0]) return fmt::format("{} units, not {}", seconds, work + timeline.idle[0]);
  if (timeline.seconds > work + idle + n.stages - 1) return fmt::format("{} units are too many", timeline.seconds);
  return "";
}

}  // namespace

TEST_CASE("every schedule of every size is right, or a usage error") {
  for (const std::string_view name : schedule_names()) {
    int valid = 0;
    for_all_numbers([&](const Numbers& n) {
      std::string found;
      if (suits(name, n)) {
        ++valid;
        try {
          found = fault(name, n);
        } catch (const Error& error) {
          found = error.what();
        }
      } else {
        const std::string error = usage_error(name, n.stages, n.microbatches, n.chunks);
        if (error.rfind("parallel.", 0) != 0) found = error;
      }
      if (!found.empty()) FAIL_CHECK(name, " P=", n.stages, " M=", n.microbatches, " C=", n.chunks, ": ", found);
    });
    CHECK(valid >= 8);
  }
}

TEST_CASE("small schedules, written out") {
  CHECK(text_of("one_stage", 1, 3, 1, 0) == "F0 B0 F1 B1 F2 B2 Reduce Step");
  CHECK(text_of("model", 2, 1, 1, 0) == "F0 SA0 RG0 B0 Reduce Step");
  CHECK(text_of("model", 2, 1, 1, 1) == "RA0 F0 B0 SG0 Reduce Step");
  CHECK(text_of("gpipe", 2, 2, 1, 0) == "F0 SA0 F1 SA1 RG0 B0 RG1 B1 Reduce Step");
  CHECK(text_of("gpipe", 2, 2, 1, 1) == "RA0 F0 RA1 F1 B0 SG0 B1 SG1 Reduce Step");
  CHECK(text_of("1f1b", 2, 3, 1, 0) == "F0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 RG2 B2 Reduce Step");
  CHECK(text_of("1f1b", 2, 3, 1, 1) == "RA0 F0 RA1 B0 SG0 F1 B1 SG1 RA2 F2 B2 SG2 Reduce Step");
  CHECK(text_of("zero_bubble", 2, 3, 1, 1) == "RA0 F0 RA1 I0 SG0 F1 I1 SG1 W0 RA2 F2 I2 SG2 W1 W2 Reduce Step");
  // Chunk 1 of the last stage follows chunk 0 in memory.
  CHECK(text_of("zb_v", 2, 3, 2, 1) ==
        "RA0 F0 RA1 F0.1 SA0.1 RA2 F1 F1.1 SA1.1 RG0.1 I0.1 W0.1 F2 RG1.1 I0 SG0 W0 F2.1 SA2.1 I1.1 W1.1 RG2.1 I1 SG1 "
        "I2.1 I2 SG2 W1 W2.1 W2 Reduce Step");
  // The activation of chunk 0 goes round to the first stage.
  CHECK(text_of("interleaved", 2, 2, 2, 0) ==
        "F0 SA0 F1 SA1 RA0.1 F0.1 SA0.1 RA1.1 F1.1 SA1.1 RG0.1 B0.1 SG0.1 RG1.1 B1.1 SG1.1 RG0 B0 RG1 B1 Reduce Step");
}

TEST_CASE("one stage has nobody to talk to") {
  for (const std::string_view name : schedule_names()) {
    const int chunks = name == "zb_v" || name == "interleaved" ? 2 : 1;
    const Schedule schedule = make_schedule(name, 1, 1, chunks);
    for (const Action& action : schedule.actions.at(0)) CHECK(!is_communication(action.kind));
  }
}

TEST_CASE("the forwards of a schedule") {
  const Schedule forwards = forward_only(make_schedule("zb_v", 2, 3, 2));
  CHECK(text_of(forwards.actions.at(0)) == "F0 SA0 F1 SA1 F2 SA2 RA0.1 F0.1 RA1.1 F1.1 RA2.1 F2.1");
  CHECK(text_of(forwards.actions.at(1)) == "RA0 F0 RA1 F0.1 SA0.1 RA2 F1 F1.1 SA1.1 F2 F2.1 SA2.1");
  CHECK(activations_in_flight(forwards, 0) == 6);
}

TEST_CASE("numbers that do not suit a schedule are usage errors that say what would") {
  CHECK(usage_error("pipedream", 2, 2, 1) ==
        "parallel.schedule: 'pipedream' is not a schedule (one_stage, model, gpipe, 1f1b, interleaved, zero_bubble, "
        "zb_v)");
  CHECK(usage_error("gpipe", 0, 2, 1) == "parallel.stages: 0 is not a number of stages (it must be at least 1)");
  CHECK(usage_error("gpipe", 2, -1, 1) ==
        "parallel.microbatches: -1 is not a number of microbatches (it must be at least 1)");
  CHECK(usage_error("gpipe", 2, 2, 0) == "parallel.chunks: 0 is not a number of chunks (it must be at least 1)");
  CHECK(usage_error("gpipe", 2, 2, 2) == "parallel.chunks: gpipe has 1 chunk, not 2 (interleaved has several)");
  CHECK(usage_error("zb_v", 2, 2, 3) == "parallel.chunks: zb_v has 2 chunks, not 3");
  CHECK(usage_error("interleaved", 2, 2, 1) ==
        "parallel.chunks: interleaved needs at least 2 chunks, not 1 (1f1b has 1)");
  CHECK(usage_error("interleaved", 4, 6, 2) ==
        "parallel.microbatches: interleaved needs a multiple of the 4 stages, not 6 (4 or 8)");
  CHECK(usage_error("interleaved", 4, 3, 2) ==
        "parallel.microbatches: interleaved needs a multiple of the 4 stages, not 3 (4)");
  CHECK(usage_error("one_stage", 3, 6, 1) ==
        "parallel.stages: one_stage has 1 stage, not 3 (gpipe and 1f1b have several)");
  CHECK(usage_error("model", 3, 6, 1) ==
        "parallel.microbatches: model has 1 microbatch, not 6 (gpipe and 1f1b have several)");
}

TEST_CASE("virtual stages go round and round, or down and up") {
  Schedule schedule = make_schedule("interleaved", 3, 3, 2);
  CHECK(schedule.virtual_stages() == 6);
  CHECK(schedule.virtual_stage(1, 1) == 4);
  CHECK(schedule.stage_of(4) == 1);
  schedule = make_schedule("zb_v", 3, 3, 2);
  CHECK(schedule.virtual_stage(0, 1) == 5);
  CHECK(schedule.virtual_stage(2, 1) == 3);
  for (int v = 0; v < 6; ++v) CHECK(schedule.virtual_stage(schedule.stage_of(v), schedule.chunk_of(v)) == v);
}

TEST_CASE("activations in flight are the most forwards before their backward, or its last half") {
  CHECK(activations_in_flight(schedule_of(3, 1, {"F0 F1 B0 F2 B1 B2 Reduce Step"}), 0) == 2);
  CHECK(activations_in_flight(schedule_of(3, 1, {"F0 F1 I0 F2 W0 I1 W1 I2 W2 Reduce Step"}), 0) == 3);
}

TEST_CASE("actions have names") {
  const std::string names = "F12 B3.1 I2 W2 SA0 RA1.2 SG0 RG10 Reduce Step";
  CHECK(text_of(list_of(names)) == names);
  CHECK(action_name({ActionKind::kForward, 12}) == "F12");
  CHECK(action_name({ActionKind::kBackward, 3, 1}) == "B3.1");
}

}  // namespace convoy
