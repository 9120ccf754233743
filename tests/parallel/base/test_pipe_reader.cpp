// SPDX-License-Identifier: Apache-2.0
#include "parallel/base/pipe_reader.h"

#include <doctest/doctest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

namespace convoy {

namespace {

constexpr std::string_view kLine = "convoy: error: the last line\n";

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void write_line() const {
    REQUIRE(::write(ends[1], kLine.data(), kLine.size()) == static_cast<ssize_t>(kLine.size()));
  }

  std::array<int, 2> ends{};
};

}  // namespace

TEST_CASE("what a slow reader has not read yet is waited for") {
  const Pipe pipe;
  pipe.write_line();
  std::atomic<bool> read = false;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    read = true;
    std::array<char, 100> text{};
    CHECK(::read(pipe.ends[0], text.data(), text.size()) == static_cast<ssize_t>(kLine.size()));
  });
  wait_for_pipe_reader(pipe.ends[1], std::chrono::minutes(10));  // a hang is found by ctest
  CHECK(read);
  reader.join();
}

TEST_CASE("a pipe that nobody reads, an empty one and other descriptors end the wait") {
  const Pipe pipe;
  wait_for_pipe_reader(pipe.ends[1], std::chrono::minutes(10));
  pipe.write_line();
  wait_for_pipe_reader(pipe.ends[1], std::chrono::milliseconds(20));
  int unread = 0;
  REQUIRE(::ioctl(pipe.ends[0], FIONREAD, &unread) == 0);
  CHECK(unread == static_cast<int>(kLine.size()));
  wait_for_pipe_reader(-1, std::chrono::minutes(10));
}

}  // namespace convoy
