// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/agree.h"

#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "layers/base/host_name.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

// An Error that travels.
struct Outcome {
  ExitCode code;
  std::string host;  // SystemError::host(), or empty
  std::string message;
};

// The Error that `body` ends with, if any: the only place where foreign exceptions become one.
template <class Body>
std::optional<Outcome> outcome(const Body& body, const std::string& what) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return Outcome{error.code(), host_at_fault(error), error.what()};
  } catch (const std::bad_alloc&) {
    return Outcome{ExitCode::kFailure, "", fmt::format("{}: out of memory", what)};
  } catch (const std::exception& error) {
    return Outcome{ExitCode::kFailure, "", fmt::format("{}: {}", what, error.what())};
  } catch (...) {
    return Outcome{ExitCode::kFailure, "", fmt::format("{}: an exception of unknown type", what)};
  }
}

// As one text: the code is one character, the host ends with a null.
std::string packed(const Outcome& outcome) {
  return std::string(1, static_cast<char>(outcome.code)) + outcome.host + '\0' + outcome.message;
}

Outcome unpacked(std::string text) {
  const std::size_t null = text.find('\0', 1);
  Outcome outcome{static_cast<ExitCode>(text.front()), text.substr(1, null - 1), {}};
  text.erase(0, null + 1);  // it may be a long one
  outcome.message = std::move(text);
  return outcome;
}

template <class Kind>
[[noreturn]] void throw_collective(Kind error) {
  error.set_collective();
  throw error;
}

[[noreturn]] void throw_outcome(const Outcome& outcome) {
  if (outcome.host.empty()) throw_collective(Error(outcome.message, outcome.code));
  throw_collective(SystemError(outcome.message, outcome.code, outcome.host));
}

}  // namespace

void agree(Communicator& communicator, const std::function<void()>& body, const std::string& what, bool tries) {
  std::optional<Outcome> failure = outcome(body, what);
  const int rank = communicator.rank();
  double first = failure ? rank : communicator.size();
  communicator.all_reduce(std::span<double>(&first, 1), ReduceOp::kMin, what);
  const int culprit = static_cast<int>(first);
  if (culprit == communicator.size()) return;

  // What the system of one host refuses and that of another grants is no wrong input.
  double granted = tries && !failure ? 1 : 0;
  communicator.all_reduce(std::span<double>(&granted, 1), ReduceOp::kMax, what);
  std::string text;
  if (rank == culprit) {
    const bool stopped = failure->code == ExitCode::kStopped;  // told to: whichever rank heard of it first
    if (rank != 0 && !stopped)
      failure->message = fmt::format("on rank {} ({}): {}", rank, host_name(), failure->message);
    if (!failure->host.empty() && granted > 0) failure->code = ExitCode::kFailure;
    text = packed(*failure);
  }
  throw_outcome(unpacked(communicator.broadcast(std::move(text), culprit, what)));
}

std::string on_root(Communicator& communicator, const std::function<std::string()>& body, const std::string& what) {
  std::string text;
  if (communicator.rank() == 0) {
    const auto failure = outcome([&] { text = packed({ExitCode::kDone, "", body()}); }, what);
    if (failure) text = packed(*failure);
  }
  Outcome result = unpacked(communicator.broadcast(std::move(text), 0, what));
  if (result.code != ExitCode::kDone) throw_outcome(result);
  return std::move(result.message);
}

}  // namespace convoy
