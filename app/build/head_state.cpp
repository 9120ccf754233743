// SPDX-License-Identifier: Apache-2.0
#include "app/build/head_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

namespace convoy {

namespace {

constexpr const char* kRows = "rows of the head";

// Calls body(part, parameter) for each sharded parameter of each part.
template <class Body>
void for_sharded(Run& run, const std::vector<HeadPart>& parts, const Body& body) {
  for (const HeadPart& part : parts) {
    for (const auto& parameter : run.model->parameters().parameters()) {
      if (parameter->shard) body(part, *parameter);
    }
  }
}

// Calls body(replica, its shard) for all that have rows of the parameter, but 0.
template <class Body>
void for_others(const Run& run, const Parameter& parameter, const Body& body) {
  for (int replica = 1; replica < run.replicas->size(); ++replica) {
    const ClassShard shard = class_shard(parameter.shard->classes, replica, run.replicas->size());
    if (shard.count > 0) body(replica, shard);
  }
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

}  // namespace

UnreadTensors sharded_names(const Run& run) {
  UnreadTensors names;
  for (const auto& parameter : run.model->parameters().parameters()) {
    if (parameter->shard) names.push_back(parameter->name);
  }
  return names;
}

void gather_head(Run& run, const std::vector<HeadPart>& parts, TensorSpool* spool) {
  const ParameterStore& store = run.model->parameters();
  for_sharded(run, parts, [&](const HeadPart& part, const Parameter& parameter) {
    const std::vector<float> own = store.export_rows(parameter, part.flat);
    if (!run.is_root()) {
      if (!own.empty()) run.replicas->send_bytes(std::as_bytes(std::span(own)), 0, kRows);
      return;
    }
    spool->begin(part.group, parameter.name, parameter.file_shape);
    spool->append(own);
    for_others(run, parameter, [&](int replica, const ClassShard&) {
      spool->append(floats_of(run.replicas->receive_bytes(replica, kRows)));
    });
  });
}

std::string first_nonfinite_of_head(const Run& run, const TensorRows& file) {
  for (const auto& parameter : run.model->parameters().parameters()) {
    if (!parameter->shard) continue;
    for (int replica = 0; replica < run.replicas->size(); ++replica) {  // as much at a time as when they are sent
      const ClassShard shard = class_shard(parameter->shard->classes, replica, run.replicas->size());
      const std::vector<float> rows = file.read("/model", parameter->name, shard.first, shard.count);
      if (!std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); })) return parameter->name;
    }
  }
  return "";
}

void scatter_head(Run& run, const std::vector<HeadPart>& parts, const TensorRows* file) {
  ParameterStore& store = run.model->parameters();
  for_sharded(run, parts, [&](const HeadPart& part, const Parameter& parameter) {
    const ClassShard& shard = *parameter.shard;
    if (!run.is_root()) {
      if (shard.count > 0) {
        store.import_rows(parameter, floats_of(run.replicas->receive_bytes(0, kRows)), part.flat);
      }
      return;
    }
    store.import_rows(parameter, file->read(part.group, parameter.name, shard.first, shard.count), part.flat);
    for_others(run, parameter, [&](int replica, const ClassShard& other) {
      const std::vector<float> theirs = file->read(part.group, parameter.name, other.first, other.count);
      run.replicas->send_bytes(std::as_bytes(std::span(theirs)), replica, kRows);
    });
  });
  store.refresh_compute();
}

}  // namespace convoy
