// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/replay.h"

#include <algorithm>
#include <array>
#include <istream>
#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "layers/backend/checksum.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/host_name.h"
#include "layers/base/random.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

constexpr const char* kPage = "docs/errors/silent_corruption.md";
constexpr std::int64_t kPartElements = 1 << 18;  // of an update: values, gradients and a slot, and copies, take 5 MB

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
  const std::int64_t learned = store.learned_values().size();
  for (const ParameterStore::Piece& piece : values_) {
    if (piece.offset + piece.elements <= learned) gradients_.push_back(piece);
  }
  bounds_ = optimizer.bounds(kPartElements);
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < bounds_.size(); ++i) longest = std::max(longest, bounds_[i] - bounds_[i - 1]);
  second_values_ = backend_.tensor({longest}, DType::kF32);
  for (const auto& [name, slot] : optimizer.slots()) {
    second_slots_.emplace_back(name, backend_.tensor({longest}, slot.dtype()));
  }
  second_running_ = backend_.tensor(store.running().shape(), DType::kF32);
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

void Replay::add_sums(const std::vector<ParameterStore::Piece>& pieces, std::int64_t begin, const Tensor& part,
                      Sums& sums) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::int64_t offset = pieces[i].offset;
    const std::int64_t from = std::max(begin, offset), to = std::min(begin + part.size(), offset + pieces[i].elements);
    if (from < to) sums[i] += backend_.checksum(part.view(from - begin, {to - from}), from - offset);
  }
}

void Replay::gradients_final(std::int64_t begin, std::int64_t end) {
  add_sums(gradients_, begin, model_.parameters().gradients().view(begin, {end - begin}), own_gradients_);
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

void Replay::change_twice(const std::string& what, const Tensor& flat, const std::vector<ParameterStore::Piece>& pieces,
                          const Change& change) {
  const std::int64_t length = second_values_.size();
  if (length == 0) return change(0, flat);  // nothing learns here
  std::array<Sums, 2> sums{Sums(pieces.size(), 0), Sums(pieces.size(), 0)};
  for (std::int64_t begin = 0; begin < flat.size(); begin += length) {
    const Shape shape{std::min(length, flat.size() - begin)};
    const std::array<Tensor, 2> parts{flat.view(begin, shape), second_values_.view(0, shape)};
    backend_.run(ops::Cast{parts[0], parts[1]});
    for (const std::size_t twin : {1U, 0U}) {
      change(begin, parts[twin]);
      add_sums(pieces, begin, parts[twin], sums[twin]);
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (sums[0][i] != sums[1][i] && kind_ == Kind::kNothing) {
      found(Kind::kComputed, fmt::format("the {} of {}", what, pieces[i].name));
    }
  }
}

const Tensor& Replay::measure(GradientClip& clip) {
  const std::uint64_t first = backend_.checksum(clip.measure());
  const Tensor& squares = clip.measure();
  if (backend_.checksum(squares) != first && kind_ == Kind::kNothing) {
    found(Kind::kComputed, "the norms of the gradients");
  }
  return squares;
}

void Replay::scale(GradientClip& clip) {
  change_twice("clipped gradient", model_.parameters().gradients(), gradients_,
               [&](std::int64_t, const Tensor& part) { clip.scale(part); });
}

void Replay::update_average(WeightAverage& average, std::int64_t update) {
  change_twice("average", average.weights(), values_,
               [&](std::int64_t begin, const Tensor& part) { average.apply_weights(update, begin, part); });
  change_twice("average", average.statistics(), running_,
               [&](std::int64_t begin, const Tensor& part) { average.apply_statistics(update, begin, part); });
}

void Replay::update(double lr, std::int64_t update, const Tensor& nonfinite) {
  ParameterStore& store = model_.parameters();
  const Optimizer::Slots& slots = optimizer_.slots();
  // The checksums of both updates: of the values, then of each slot.
  std::array<std::vector<Sums>, 2> sums;
  for (auto& s : sums) s.assign(1 + slots.size(), Sums(gradients_.size(), 0));
  for (std::size_t part = 1; part < bounds_.size(); ++part) {
    const std::int64_t begin = bounds_[part - 1];
    const Shape shape{bounds_[part] - begin};
    const std::array<Tensor, 2> values{store.learned_values().view(begin, shape), second_values_.view(0, shape)};
    std::array<Optimizer::Slots, 2> states;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      states[0].emplace_back(slots[i].first, slots[i].second.view(begin, shape));
      states[1].emplace_back(slots[i].first, second_slots_[i].second.view(0, shape));
      backend_.run(ops::Cast{states[0][i].second, states[1][i].second});
    }
    backend_.run(ops::Cast{values[0], values[1]});
    for (const std::size_t twin : {1U, 0U}) {
      optimizer_.apply(lr, update, begin, values[twin], states[twin], twin == 0 ? nonfinite : Tensor());
    }
    for (const std::size_t twin : {0U, 1U}) {
      add_sums(gradients_, begin, values[twin], sums[twin][0]);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        add_sums(gradients_, begin, states[twin][i].second, sums[twin][1 + i]);
      }
    }
  }
  for (std::size_t buffer = 0; buffer <= slots.size(); ++buffer) {
    const std::string what = buffer == 0 ? "update" : slots[buffer - 1].first;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (sums[0][buffer][i] != sums[1][buffer][i] && kind_ == Kind::kNothing) {
        found(Kind::kComputed, fmt::format("the {} of {}", what, gradients_[i].name));
      }
    }
  }
  updated_ = sums[0][0];
  for (std::size_t i = gradients_.size(); i < values_.size(); ++i) {  // those that are frozen come last
    updated_.push_back(backend_.checksum(store.values().view(values_[i].offset, {values_[i].elements})));
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

// Whether no rank has found anything, and all replicas of each stage have the same digest.
bool Replay::all_well(std::uint64_t digest) {
  double stages = stage_ + 1;
  all_.all_reduce(std::span<double>(&stages, 1), ReduceOp::kMax, "replay");
  std::vector<double> numbers(1 + static_cast<std::size_t>(stages), kNoNumber);
  numbers[0] = static_cast<double>(kind_);
  numbers[1 + static_cast<std::size_t>(stage_)] = digest_number(mix64(digest));
  return all_equal(all_, numbers, "replay") && kind_ == Kind::kNothing;
}

void Replay::conclude(std::int64_t step, const Sums& sums) {
  const std::uint64_t digest = memory_checksum(sums.data(), sums.size() * sizeof(std::uint64_t));
  if (all_well(digest)) return;
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
  every.reserve(replicas.size());
  for (const auto& [rank, own] : replicas) every.push_back(place(rank, ranks[rank].host));
  fail_together(
      alone ? fmt::format("step {}: {} {} other bits of {} than its other replicas", step,
                          fmt::join(fewest->second, ", "), fewest->second.size() == 1 ? "has" : "have", name)
            : fmt::format("step {}: the replicas have different bits of {}: {}", step, name, fmt::join(every, ", ")));
}

}  // namespace convoy
