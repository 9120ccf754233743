// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>

#include "app/base/expand_variables.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

std::string expanded(const std::string& text) {
  const std::map<std::string, std::string> variables = {{"USER", "ann"}, {"TMP_1", "/scratch/7"}, {"EMPTY", ""}};
  return expand_variables(text, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string problem(const std::string& text) {
  try {
    return "no error: " + expanded(text);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
}

}  // namespace

TEST_CASE("variables in a path") {
  CHECK(expanded("").empty());
  CHECK(expanded("/tmp/x") == "/tmp/x");
  CHECK(expanded("/tmp/$USER") == "/tmp/ann");
  CHECK(expanded("$TMP_1/${USER}x$USER") == "/scratch/7/annxann");
  CHECK(problem("/tmp/$NOBODY/x") == "$NOBODY in \"/tmp/$NOBODY/x\" is not set (set it, or name a folder)");
  CHECK(problem("${EMPTY}") == "$EMPTY in \"${EMPTY}\" is empty (set it, or name a folder)");
  for (const char* text : {"/tmp/$", "$/x", "${}", "${USER", "${USER/x}", "$1", "a$ b"}) {
    CHECK(problem(text) ==
          fmt::format("\"{}\" has a '$' without a variable's name (must be $NAME or ${{NAME}})", text));
  }
}
