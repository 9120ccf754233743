// SPDX-License-Identifier: Apache-2.0
#include "app/launch/job_state.h"

#include <array>
#include <cstddef>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "io/files/atomic_file.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::array<const char*, 4> kStatusWords{"running", "done", "stopped", "failed"};
constexpr std::size_t kMaxGenerations = 1000;  // of the history that is kept

Json to_json(const GenerationRecord& g) {
  return {{"number", g.number},
          {"ranks", g.ranks},
          {"hosts", g.hosts},
          {"reason", g.reason},
          {"start", g.start},
          {"end", g.end},
          {"seconds_lost", g.seconds_lost},
          {"step_at_start", g.step_at_start},
          {"step_at_end", g.step_at_end},
          {"starts_before", g.starts_before},
          {"exit", g.exit},
          {"program_error", g.program_error}};
}

GenerationRecord generation_from(const Json& json) {
  GenerationRecord g;
  json.at("number").get_to(g.number);
  json.at("ranks").get_to(g.ranks);
  json.at("hosts").get_to(g.hosts);
  json.at("reason").get_to(g.reason);
  json.at("start").get_to(g.start);
  json.at("end").get_to(g.end);
  json.at("seconds_lost").get_to(g.seconds_lost);
  json.at("step_at_start").get_to(g.step_at_start);
  json.at("step_at_end").get_to(g.step_at_end);
  json.at("starts_before").get_to(g.starts_before);
  json.at("exit").get_to(g.exit);
  json.at("program_error").get_to(g.program_error);
  return g;
}

JobStatus status_from(const std::string& word) {
  for (std::size_t i = 0; i < kStatusWords.size(); ++i) {
    if (word == kStatusWords[i]) return static_cast<JobStatus>(i);
  }
  fail("unknown status \"{}\"", word);
}

}  // namespace

JobState read_job_state(const std::string& path) {
  JobState state;
  const auto text = file_text(path);
  if (!text) return state;
  try {
    const Json json = Json::parse(*text);
    state.status = status_from(json.at("status"));
    json.at("exit_code").get_to(state.exit_code);
    json.at("generation").get_to(state.generation);
    json.at("restarts").get_to(state.restarts);
    state.went_back_from = json.value("went_back_from", std::int64_t{-1});  // not in states of earlier versions
    json.at("leader").get_to(state.leader);
    for (const Json& entry : json.at("generations")) state.generations.push_back(generation_from(entry));
  } catch (const std::exception& error) {
    fail_usage("{}: is no state of a launch: {} (remove it to begin a new history)", path, error.what());
  }
  return state;
}

void write_job_state(const std::string& path, const JobState& state) {
  Json generations = Json::array();
  const std::size_t count = state.generations.size();
  for (std::size_t i = count > kMaxGenerations ? count - kMaxGenerations : 0; i < count; ++i) {
    generations.push_back(to_json(state.generations[i]));
  }
  const Json json{{"status", kStatusWords.at(static_cast<std::size_t>(state.status))},
                  {"exit_code", state.exit_code},
                  {"generation", state.generation},
                  {"restarts", state.restarts},
                  {"went_back_from", state.went_back_from},
                  {"leader", state.leader},
                  {"generations", std::move(generations)}};
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace convoy
