// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/agree.h"

#include <new>
#include <optional>
#include <span>

#include "layers/base/error.h"
#include "layers/base/host_name.h"

namespace convoy {

namespace {

// The Error that `body` ends with, if any: the only place where foreign exceptions become one.
template <class Body>
std::optional<Error> outcome(const Body& body, const std::string& what) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(fmt::format("{}: out of memory", what));
  } catch (const std::exception& error) {
    return Error(fmt::format("{}: {}", what, error.what()));
  } catch (...) {
    return Error(fmt::format("{}: an exception of unknown type", what));
  }
}

// An exit code and a message as one text, to travel: the code is one character.
std::string packed(ExitCode code, const std::string& message) {
  return std::string(1, static_cast<char>(code)) + message;
}

[[noreturn]] void throw_packed(const std::string& text) {
  Error error(text.substr(1), static_cast<ExitCode>(text.front()));
  error.set_collective();
  throw error;
}

}  // namespace

void agree(Communicator& communicator, const std::function<void()>& body, const std::string& what) {
  const std::optional<Error> failure = outcome(body, what);
  const int rank = communicator.rank();
  double first = failure ? rank : communicator.size();
  communicator.all_reduce(std::span<double>(&first, 1), ReduceOp::kMin, what);
  const int culprit = static_cast<int>(first);
  if (culprit == communicator.size()) return;

  std::string text;
  if (rank == culprit) {
    const bool stopped = failure->code() == ExitCode::kStopped;  // told to: whichever rank heard of it first
    const std::string origin = rank == 0 || stopped ? "" : fmt::format("on rank {} ({}): ", rank, host_name());
    text = packed(failure->code(), origin + failure->what());
  }
  throw_packed(communicator.broadcast(text, culprit, what));
}

std::string on_root(Communicator& communicator, const std::function<std::string()>& body, const std::string& what) {
  std::string text;
  if (communicator.rank() == 0) {
    const std::optional<Error> failure = outcome([&] { text = packed(ExitCode::kDone, body()); }, what);
    if (failure) text = packed(failure->code(), failure->what());
  }
  text = communicator.broadcast(text, 0, what);
  if (static_cast<ExitCode>(text.front()) != ExitCode::kDone) throw_packed(text);
  return text.substr(1);
}

}  // namespace convoy
