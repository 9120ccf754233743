// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <vector>

#include "layers/base/system_error.h"
#include "parallel/comm/agree.h"
#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

// The Error that body must throw, for its code and mark.
template <class Body>
Error caught(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error("no error", ExitCode::kDone);
}

}  // namespace

TEST_CASE_FIXTURE(MpiFixture, "all agree when all come through") {
  int runs = 0;
  for (int i = 0; i < 3; ++i)
    CHECK_NOTHROW(agree(
        *comm, [&] { ++runs; }, "work"));
  CHECK(runs == 3);
}

TEST_CASE_FIXTURE(MpiFixture, "a failure of rank 0 is everybody's, in its own words") {
  const Error error = caught([&] {
    agree(
        *comm,
        [&] {
          if (rank == 0) fail_usage("run.toml:3:1: train.stepps: unknown key");
        },
        "config");
  });
  CHECK(std::string(error.what()) == "run.toml:3:1: train.stepps: unknown key");
  CHECK(error.code() == ExitCode::kUsage);
  CHECK(error.collective());
}

TEST_CASE_FIXTURE(MpiFixture, "a failure of the last rank is everybody's, with rank and host") {
  const Error error = caught([&] {
    agree(
        *comm,
        [&] {
          if (rank == size - 1) fail("no room for {} bytes", 7);
        },
        "buffers");
  });
  if (size == 1) {
    CHECK(std::string(error.what()) == "no room for 7 bytes");
  } else {
    CHECK(std::string(error.what()).find(fmt::format("on rank {} (", size - 1)) == 0);
    CHECK(contains(error.what(), "): no room for 7 bytes"));
  }
  CHECK(error.code() == ExitCode::kFailure);
  CHECK(error.collective());
}

TEST_CASE_FIXTURE(MpiFixture, "what only one rank's system refuses is no wrong input") {
  const auto missing = [&](bool here) {
    return caught([&] {
      agree(
          *comm,
          [&] {
            if (here) fail_system(ENOENT, "cannot read data.h5");
          },
          "data");
    });
  };
  CHECK(missing(true).code() == ExitCode::kUsage);
  CHECK(missing(rank == size - 1).code() == (size == 1 ? ExitCode::kUsage : ExitCode::kFailure));
  std::string host;
  try {
    agree(
        *comm, [&] { fail_system(EIO, "cannot read data.h5"); }, "data");
  } catch (const SystemError& error) {
    host = error.host();
    CHECK(error.code() == ExitCode::kFailure);
    CHECK(error.collective());
  }
  CHECK(host == host_name());
}

TEST_CASE_FIXTURE(MpiFixture, "of several failures all throw the lowest rank's") {
  const Error all = caught([&] {
    agree(
        *comm, [&] { fail("rank {} fell", rank); }, "work");
  });
  CHECK(std::string(all.what()) == "rank 0 fell");
  if (size > 2) {
    const Error upper = caught([&] {
      agree(
          *comm,
          [&] {
            if (rank >= 2) fail("rank {} fell", rank);
          },
          "work");
    });
    CHECK(contains(upper.what(), "on rank 2 ("));
    CHECK(contains(upper.what(), "rank 2 fell"));
  }
}

TEST_CASE_FIXTURE(MpiFixture, "foreign exceptions are named after the work") {
  CHECK(contains(caught([&] {
                   agree(
                       *comm, [] { throw std::out_of_range("index 9"); }, "reading labels");
                 }).what(),
                 "reading labels: index 9"));
  CHECK(contains(caught([&] {
                   agree(
                       *comm, [] { throw 42; }, "reading labels");
                 }).what(),
                 "reading labels: an exception of unknown type"));
}

TEST_CASE_FIXTURE(MpiFixture, "the communicator works on after a failure") {
  (void)caught([&] {
    agree(
        *comm,
        [&] {
          if (rank == size - 1) fail("once");
        },
        "work");
  });
  std::vector<double> one = {1.0};
  comm->all_reduce(one, ReduceOp::kSum, "after");
  CHECK(one[0] == size);
}

TEST_CASE_FIXTURE(MpiFixture, "rank 0's text reaches all, and only rank 0 makes it") {
  int runs = 0;
  const auto text = [&](const std::string& value) {
    return on_root(
        *comm,
        [&] {
          ++runs;
          return value;
        },
        "config");
  };
  CHECK(text("[run]\nname = 'a'\n") == "[run]\nname = 'a'\n");
  CHECK(text("").empty());
  CHECK(runs == (rank == 0 ? 2 : 0));
}

TEST_CASE_FIXTURE(MpiFixture, "rank 0's failure reaches all") {
  const Error error = caught([&] {
    (void)on_root(
        *comm, []() -> std::string { fail_usage("no file"); }, "config");
  });
  CHECK(std::string(error.what()) == "no file");
  CHECK(error.code() == ExitCode::kUsage);
  CHECK(error.collective());
  const Error foreign = caught([&] {
    (void)on_root(
        *comm, []() -> std::string { throw std::runtime_error("bad"); }, "config");
  });
  CHECK(std::string(foreign.what()) == "config: bad");
  CHECK(foreign.code() == ExitCode::kFailure);
}

}  // namespace convoy
