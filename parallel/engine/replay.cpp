// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/replay.h"

#include <algorithm>
#include <istream>
#include <map>
#include <sstream>
#include <utility>

#include "layers/backend/checksum.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/host_name.h"

namespace convoy {

namespace {

constexpr const char* kPage = "docs/errors/silent_corruption.md";

// A number of the run's ranks and their hosts, for people.
std::string place(std::size_t rank, const std::string& host) { return fmt::format("rank {} on {}", rank, host); }

// What a rank tells the others: "KIND STAGE DIGEST HOST WHAT".
struct Told {
  int kind = 0, stage = 0;
  std::uint64_t digest = 0;
  std::string host, what;

  explicit Told(const std::string& text) {
    std::istringstream words(text);
    words >> kind >> stage >> digest >> host >> std::ws;
    std::getline(words, what);
  }
};

std::vector<std::uint64_t> numbers(const std::string& text) {
  std::vector<std::uint64_t> result;
  std::istringstream words(text);
  for (std::uint64_t number = 0; words >> number;) result.push_back(number);
  return result;
}

[[noreturn]] void fail_together(const std::string& message) {
  Error error(
      fmt::format("{}; hardware is the likely cause, no checkpoint of this state is written (run the same "
                  "command again, without the host if it happens there again: {})",
                  message, kPage));
  error.set_collective();
  throw error;
}

}  // namespace

Replay::Replay(std::int64_t every, Model& model, Optimizer& optimizer, Communicator& all, int stage)
    : every_(every),
      model_(model),
      backend_(model.backend()),
      optimizer_(optimizer),
      all_(all),
      stage_(stage),
      values_(model.parameters().value_pieces()),
      running_(model.parameters().running_pieces()) {
  if (every_ == 0) return;
  ParameterStore& store = model.parameters();
  const auto like = [&](const Tensor& x) { return backend_.tensor(x.shape(), x.dtype()); };
  const std::int64_t learned = store.learned_values().size();
  for (const ParameterStore::Piece& piece : values_) {
    if (piece.offset + piece.elements <= learned) gradients_.push_back(piece);
  }
  second_values_ = like(store.learned_values());
  for (const auto& [name, slot] : optimizer.slots()) second_slots_.emplace_back(name, like(slot));
  second_running_ = like(store.running());
}

Replay::Sums Replay::state_sums(const Tensor& values, const Tensor& running) {
  Sums sums;
  sums.reserve(values_.size() + running_.size());
  for (const auto& piece : values_) sums.push_back(backend_.checksum(values.view(piece.offset, {piece.elements})));
  for (const auto& piece : running_) sums.push_back(backend_.checksum(running.view(piece.offset, {piece.elements})));
  return sums;
}

std::string Replay::state_name(std::size_t i) const {
  return i < values_.size() ? values_[i].name : running_[i - values_.size()].name;
}

void Replay::found(Kind kind, const std::string& what) {
  if (kind >= kind_) return;
  kind_ = kind;
  what_ = what;
}

void Replay::begin_pass(int pass) {
  active_ = true;
  pass_ = pass;
  next_ = 0;
  own_gradients_.assign(gradients_.size(), 0);
  if (pass > 0) {
    model_.parameters().refresh_compute();
    return;
  }
  records_.clear();
  updated_.clear();
  if (kept_.empty()) kept_ = state_sums(model_.parameters().values(), model_.parameters().running());
}

void Replay::computed(const std::string& what, const Tensor& x) {
  if (x) note({what, false, backend_.checksum(x)});
}

void Replay::received(const std::string& what, const Tensor& x) {
  if (x) note({what, true, backend_.checksum(x)});
}

void Replay::note(Record record) {
  if (pass_ == 0) {
    records_.push_back(std::move(record));
    return;
  }
  if (next_ >= records_.size() || records_[next_].what != record.what) {
    fail("the second pass of a step has computed {}, which the first one has not", record.what);
  }
  const Record& first = records_[next_++];
  if (first.sum == record.sum || kind_ != Kind::kNothing) return;  // the first difference decides whose it is
  found(record.received ? Kind::kReceived : Kind::kComputed, record.what);
}

void Replay::gradients_final(std::int64_t begin, std::int64_t end) {
  const Tensor& flat = model_.parameters().gradients();
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const std::int64_t offset = gradients_[i].offset;
    const std::int64_t from = std::max(begin, offset), to = std::min(end, offset + gradients_[i].elements);
    if (from < to) own_gradients_[i] += backend_.checksum(flat.view(from, {to - from}), from);
  }
}

void Replay::end_pass(bool reduced, const Tensor& losses) {
  computed("the loss", losses);
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    note({"the gradient of " + gradients_[i].name, false, own_gradients_[i]});
  }
  ParameterStore& store = model_.parameters();
  if (reduced) {
    for (const auto& piece : gradients_) {
      received("the sum of the gradients of " + piece.name, store.gradients().view(piece.offset, {piece.elements}));
    }
    if (store.statistics().size() > 0) received("the sum of the batch-norm statistics", store.statistics());
  }
  if (pass_ == 0) return;
  check_memory(state_sums(store.values(), store.running()));
}

void Replay::check_memory(const Sums& sums) {
  const auto [now, kept] = std::mismatch(sums.begin(), sums.end(), kept_.begin(), kept_.end());
  if (now != sums.end()) found(Kind::kMemory, state_name(static_cast<std::size_t>(now - sums.begin())));
}

void Replay::update(double lr, std::int64_t update, const Tensor& nonfinite) {
  ParameterStore& store = model_.parameters();
  const auto copy = [&](const Tensor& from, const Tensor& to) {
    if (from.size() > 0) backend_.run(ops::Cast{from, to});
  };
  copy(store.learned_values(), second_values_);
  for (std::size_t i = 0; i < second_slots_.size(); ++i) copy(optimizer_.slots()[i].second, second_slots_[i].second);
  optimizer_.step(lr, update, nonfinite);
  optimizer_.apply(lr, update, second_values_, second_slots_, Tensor());
  const auto sum = [&](const Tensor& flat, const ParameterStore::Piece& piece) {
    return backend_.checksum(flat.view(piece.offset, {piece.elements}));
  };
  const auto differs = [&](const std::string& what, const ParameterStore::Piece& piece) {
    if (kind_ == Kind::kNothing) found(Kind::kComputed, fmt::format("the {} of {}", what, piece.name));
  };
  for (std::size_t i = 0; i < values_.size(); ++i) {  // those that learn come first
    updated_.push_back(sum(store.values(), values_[i]));
    if (i < gradients_.size() && updated_.back() != sum(second_values_, values_[i])) differs("update", values_[i]);
  }
  for (std::size_t slot = 0; slot < second_slots_.size(); ++slot) {
    const auto& [name, second] = second_slots_[slot];
    for (const auto& piece : gradients_) {
      if (sum(optimizer_.slots()[slot].second, piece) != sum(second, piece)) differs(name, piece);
    }
  }
}

void Replay::update_running_statistics() {
  ParameterStore& store = model_.parameters();
  if (store.running().size() > 0) backend_.run(ops::Cast{store.running(), second_running_});
  store.update_running_statistics();
  store.average_statistics(second_running_);
  const bool all = !updated_.empty();  // an update that was left out has summed up nothing
  for (const auto& piece : running_) {
    const Shape shape{piece.elements};
    const std::uint64_t sum = backend_.checksum(store.running().view(piece.offset, shape));
    if (all) updated_.push_back(sum);
    const bool equal = sum == backend_.checksum(second_running_.view(piece.offset, shape));
    if (!equal && kind_ == Kind::kNothing) found(Kind::kComputed, piece.name);
  }
}

void Replay::end_step(std::int64_t update) {
  if (every_ == 0) return;
  const bool twice = std::exchange(active_, false), keeps = due(update + 1);
  kept_.clear();
  if (!twice && !keeps) return;
  Sums sums =
      twice && !updated_.empty() ? updated_ : state_sums(model_.parameters().values(), model_.parameters().running());
  if (twice) conclude(update + 1, sums);
  if (keeps) kept_ = std::move(sums);
}

void Replay::check_state(std::int64_t step) {
  if (every_ == 0) return;
  const Sums sums = state_sums(model_.parameters().values(), model_.parameters().running());
  if (!kept_.empty()) check_memory(sums);
  conclude(step, sums);
}

void Replay::conclude(std::int64_t step, const Sums& sums) {
  const std::uint64_t digest = memory_checksum(sums.data(), sums.size() * sizeof(std::uint64_t));
  std::vector<Told> ranks;
  for (const std::string& text : all_.all_gather(
           fmt::format("{} {} {} {} {}", static_cast<int>(kind_), stage_, digest, host_name("unknown"), what_),
           "replay")) {
    ranks.emplace_back(text);
  }
  const auto worst =
      std::min_element(ranks.begin(), ranks.end(), [](const Told& a, const Told& b) { return a.kind < b.kind; });
  if (static_cast<Kind>(worst->kind) != Kind::kNothing) {
    const auto others = std::count_if(worst + 1, ranks.end(), [&](const Told& t) { return t.kind == worst->kind; });
    const std::string where = place(static_cast<std::size_t>(worst - ranks.begin()), worst->host) +
                              (others > 0 ? fmt::format(" (and {} after it)", counted(others, "rank")) : "");
    switch (static_cast<Kind>(worst->kind)) {
      case Kind::kMemory:
        fail_together(
            fmt::format("step {}: {}: bits of {} have changed in memory since its update", step, where, worst->what));
      case Kind::kReceived:
        fail_together(fmt::format("step {}: computed twice, {} has received other bits the second time, first in {}",
                                  step, where, worst->what));
      default:
        fail_together(fmt::format("step {}: computed twice, {} has got other bits the second time, first in {}", step,
                                  where, worst->what));
    }
  }
  const auto differs = [&](const Told& t) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](const Told& u) { return u.stage == t.stage && u.digest != t.digest; });
  };
  const auto found = std::find_if(ranks.begin(), ranks.end(), differs);
  if (found == ranks.end()) return;
  // The replicas of the first such stage: the tensor, and the ranks that are not with the majority.
  const int stage = found->stage;
  const std::vector<std::string> texts = all_.all_gather(fmt::format("{}", fmt::join(sums, " ")), "replay");
  std::map<std::size_t, Sums> replicas;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].stage == stage) replicas.emplace(rank, numbers(texts[rank]));
  }
  std::size_t tensor = 0;
  const Sums& model = replicas.begin()->second;
  const auto equal = [&](const auto& replica) { return replica.second.at(tensor) == model[tensor]; };
  while (tensor + 1 < model.size() && std::all_of(replicas.begin(), replicas.end(), equal)) ++tensor;
  std::map<std::uint64_t, std::vector<std::string>> by_sum;
  for (const auto& [rank, own] : replicas) by_sum[own.at(tensor)].push_back(place(rank, ranks[rank].host));
  const auto fewest = std::min_element(by_sum.begin(), by_sum.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const std::string name =
      all_.broadcast(stage_ == stage ? state_name(tensor) : "", static_cast<int>(replicas.begin()->first), "replay");
  const bool alone = by_sum.size() == 2 && 2 * fewest->second.size() < replicas.size();
  std::vector<std::string> every;
  for (const auto& [rank, own] : replicas) every.push_back(place(rank, ranks[rank].host));
  fail_together(
      alone ? fmt::format("step {}: {} {} other bits of {} than its other replicas", step,
                          fmt::join(fewest->second, ", "), fewest->second.size() == 1 ? "has" : "have", name)
            : fmt::format("step {}: the replicas have different bits of {}: {}", step, name, fmt::join(every, ", ")));
}

}  // namespace convoy
