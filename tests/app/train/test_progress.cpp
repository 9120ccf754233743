// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "app/train/progress.h"

using namespace convoy;

namespace {

using FilePointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string content(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

/// What three steps with a message after the second print.
std::string printed(ProgressMode mode) {
  const FilePointer file(std::tmpfile(), &std::fclose);
  Progress progress(mode, 3, 2, file.get());
  progress.step(1, 0, 1.5, 100);
  progress.step(2, 0, 1.25, 100);
  progress.message("hello");
  progress.step(3, 1, 1, 100);
  progress.finish();
  progress.message("done");
  return content(file.get());
}

}  // namespace

TEST_CASE("a line") {
  ProgressState state{120, 400, 2, 20, 0.51234, 1234.56, std::nullopt};
  CHECK(progress_line(state) == "epoch 3/20  step 120/400  loss 0.5123  1234.6 samples/s");
  state.left = std::chrono::seconds(80);
  CHECK(progress_line(state) == "epoch 3/20  step 120/400  loss 0.5123  1234.6 samples/s  00:01:20 left");
}

TEST_CASE("a line of a packing") {
  ProgressState state{120, 400, 0, 1, 0, 1234.56, std::chrono::seconds(80)};
  state.packing = true;
  CHECK(progress_line(state) == "image 120/400  1234.6 images/s  00:01:20 left");
}

TEST_CASE("a bar") {
  const ProgressState state{1, 2, 0, 1, 0.5, 10, std::nullopt};
  CHECK(progress_bar(state, 200, false) ==
        "[############............] epoch 1/1  step 1/2  loss 0.5000  10.0 samples/s");
  CHECK(progress_bar(state, 56, false) == "[##..] epoch 1/1  step 1/2  loss 0.5000  10.0 samples/s");
  CHECK(progress_bar(state, 20, false) == "epoch 1/1  step 1/2");
  CHECK(progress_bar(state, 200, true).find("\x1b[32m") != std::string::npos);
}

TEST_CASE("a line and a bar of an evaluation") {
  ProgressState state{120, 400, 2, 20, 0.5, 10, std::chrono::seconds(80)};
  state.evaluated = 12;
  state.to_evaluate = 48;
  CHECK(progress_line(state) == "epoch 3/20  step 120/400  evaluating batch 12/48");
  CHECK(progress_bar(state, 200, false).starts_with("[######..................] epoch 3/20"));
  state.total_steps = 0;
  CHECK(progress_line(state) == "evaluating batch 12/48");
}

TEST_CASE("an evaluation is shown while it lasts, and the newest step after it") {
  const FilePointer file(std::tmpfile(), &std::fclose);
  Progress progress(ProgressMode::kBar, 100, 10, file.get());
  progress.step(10, 0, 2, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(110));  // a bar is drawn every 100 ms
  progress.evaluating(10, 0, 3, 8);
  progress.message("validation loss");
  const std::string text = content(file.get());
  CHECK(text.find("epoch 1/10  step 10/100  evaluating batch 3/8") != std::string::npos);
  CHECK(text.substr(text.find("validation loss")).find("step 10/100  loss 2.0000") != std::string::npos);
}

TEST_CASE("lines: the first and the last step, and messages") {
  CHECK(printed(ProgressMode::kLines) ==
        "epoch 1/2  step 1/3  loss 1.5000  100.0 samples/s\nhello\n"
        "epoch 2/2  step 3/3  loss 1.0000  100.0 samples/s  00:00:00 left\ndone\n");
  CHECK(printed(ProgressMode::kAuto) == printed(ProgressMode::kLines));  // a file is no terminal
}

TEST_CASE("off: messages only") { CHECK(printed(ProgressMode::kOff) == "hello\ndone\n"); }

TEST_CASE("bar: a message does not destroy it, and the last line is its end") {
  const std::string text = printed(ProgressMode::kBar);
  CHECK(text.find("\r\x1b[2Khello\n[") != std::string::npos);
  CHECK(text.ends_with("100.0 samples/s  00:00:00 left\ndone\n"));
  CHECK(text.find("\x1b[32m") == std::string::npos);
}

TEST_CASE("a run that stops early still shows its last step") {
  const FilePointer file(std::tmpfile(), &std::fclose);
  Progress progress(ProgressMode::kLines, 100, 10, file.get());
  progress.step(41, 4, 2, 1);
  progress.step(42, 4, 2, 1);
  progress.finish();
  CHECK(content(file.get()).find("step 42/100") != std::string::npos);
}
