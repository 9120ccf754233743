// SPDX-License-Identifier: Apache-2.0
//
// Whole models: parameter names and counts, the flat buffers, files in and out, accumulation over microbatches, and
// the promise that a steady step allocates nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/base/random.h"
#include "layers/loss.h"
#include "layers/models/models.h"
#include "layers/optim/optimizer.h"

using namespace convoy;

namespace {

struct Trainee {
  explicit Trainee(std::vector<Unit> units, const Shape& input, int threads = 1)
      : backend(threads, DType::kF32), model(backend, std::move(units), input, 42), cache(model.make_cache()) {
    totals = backend.tensor({3}, DType::kF64);
  }

  Tensor images(const Shape& shape, std::uint64_t key) {
    std::vector<float> host(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_normal(key, i));
    Tensor x = backend.tensor(shape, DType::kF32);
    backend.copy_from_host(host.data(), x);
    return x;
  }

  /// Forward and backward of one microbatch; returns the sum of its losses.
  double microbatch(const Shape& shape, std::uint64_t key, std::int64_t global) {
    const Tensor x = images(shape, key);
    std::vector<std::int64_t> labels(static_cast<std::size_t>(shape[0]));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 3);
    const Tensor targets = backend.tensor({shape[0]}, DType::kI64);
    backend.copy_from_host(labels.data(), targets);
    cache.share = static_cast<float>(shape[0]) / static_cast<float>(global);
    backend.zero(totals);
    const Tensor y = model.forward(x, cache, Mode::kTraining);
    const Tensor dy = backend.tensor(y.shape(), y.dtype());
    Loss{}.apply(backend, y, targets, global, dy, totals);
    model.backward(dy, cache, [&](std::int64_t done) { finished.push_back(done); });
    std::array<double, 3> host{};
    backend.copy_to_host(totals, host.data());
    return host[0];
  }

  std::vector<float> gradients() {
    std::vector<float> host(static_cast<std::size_t>(model.parameters().gradients().size()));
    backend.copy_to_host(model.parameters().gradients(), host.data());
    return host;
  }

  OnednnBackend backend;
  Model model;
  Cache cache;
  Tensor totals;
  std::vector<std::int64_t> finished;
};

std::map<std::string, Shape> names_of(Model& model) {
  std::map<std::string, Shape> names;
  for (const HostTensor& t : model.parameters().export_model()) names[t.name] = t.shape;
  return names;
}

}  // namespace

TEST_CASE("parameter counts are torchvision's") {
  // torchvision.models.resnet{18,34,50,101,152}(num_classes=1000): sum of p.numel() over parameters().
  const std::map<int, std::int64_t> counts{
      {18, 11689512}, {34, 21797672}, {50, 25557032}, {101, 44549160}, {152, 60192808}};
  for (const auto& [depth, count] : counts) {
    Trainee t(resnet_model(depth, Stem::kImagenet, 1000), {1, 3, 64, 64});
    CHECK(t.model.parameter_count() == count);
  }
}

TEST_CASE("parameter names and shapes are torchvision's") {
  Trainee t(resnet_model(50, Stem::kImagenet, 1000), {1, 3, 64, 64});
  auto names = names_of(t.model);
  CHECK(names.size() == 320);  // len(torchvision.models.resnet50().state_dict())
  CHECK(names.at("conv1.weight") == Shape{64, 3, 7, 7});
  CHECK(names.at("bn1.running_var") == Shape{64});
  CHECK(names.at("bn1.num_batches_tracked") == Shape{});
  CHECK(names.at("layer1.0.downsample.0.weight") == Shape{256, 64, 1, 1});
  CHECK(names.at("layer2.0.conv2.weight") == Shape{128, 128, 3, 3});
  CHECK(names.at("layer4.2.bn3.weight") == Shape{2048});
  CHECK(names.at("fc.weight") == Shape{1000, 2048});
  Trainee toy(toy_model(5), {4, 10});
  CHECK(names_of(toy.model).at("net2.weight") == Shape{5, 10});
  Trainee mlp(mlp_model({32, 16}, 10), {4, 1, 8, 8});
  CHECK(names_of(mlp.model).at("fc1.weight") == Shape{32, 64});
  CHECK(names_of(mlp.model).at("fc3.bias") == Shape{10});
}

TEST_CASE("initial weights have torchvision's distribution and depend on seed and name alone") {
  Trainee t(resnet_model(18, Stem::kSmall, 10), {2, 3, 16, 16});
  for (const HostTensor& h : t.model.parameters().export_model()) {
    const auto* v = h.data<float>();
    const auto n = static_cast<std::size_t>(h.shape.size());
    if (h.name == "layer3.1.conv2.weight") {
      const double sd = std::sqrt(2.0 / (256 * 9));
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < n; ++i) sum += v[i], squares += static_cast<double>(v[i]) * v[i];
      // standard errors of mean and variance of n = 589,824 normal draws; five of them
      CHECK(std::abs(sum / static_cast<double>(n)) < 5 * sd / std::sqrt(static_cast<double>(n)));
      CHECK(squares / static_cast<double>(n) ==
            doctest::Approx(sd * sd).epsilon(5 * std::sqrt(2.0 / static_cast<double>(n))));
    } else if (h.name == "fc.weight") {
      const double bound = 1 / std::sqrt(512.0);
      for (std::size_t i = 0; i < n; ++i) CHECK(std::abs(v[i]) <= bound * (1 + 1e-6));
    } else if (h.name == "bn1.weight") {
      CHECK(v[0] == 1.0F);
    } else if (h.name == "bn1.bias") {
      CHECK(v[0] == 0.0F);
    }
  }
  Trainee other(resnet_model(18, Stem::kSmall, 10), {8, 3, 32, 32});  // another batch and image size
  const auto a = t.model.parameters().export_model();
  const auto b = other.model.parameters().export_model();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK_MESSAGE(a[i].bytes == b[i].bytes, a[i].name);
}

TEST_CASE("export and import are bitwise inverse, in padded layouts too") {
  // 3 and 10 channels are not multiples of any vector width: oneDNN pads them.
  Trainee t(resnet_model(18, Stem::kSmall, 10), {2, 3, 8, 8});
  auto tensors = t.model.parameters().export_model();
  for (auto& h : tensors) {
    if (h.dtype != DType::kF32) continue;
    const std::uint64_t key = random_key(7, h.name);
    for (std::int64_t i = 0; i < h.shape.size(); ++i)
      h.data<float>()[i] = static_cast<float>(random_normal(key, static_cast<std::uint64_t>(i)));
  }
  t.model.parameters().import_model(tensors, "memory");
  const auto again = t.model.parameters().export_model();
  for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(again[i].bytes == tensors[i].bytes);

  // Into the memory of an earlier result; where that is of another model, shapes decide.
  auto earlier = again;
  const std::byte* memory = earlier.front().bytes.data();
  earlier[1] = HostTensor("other", Shape{7}, DType::kF32);
  earlier.pop_back();
  const auto reused = t.model.parameters().export_model(std::move(earlier));
  REQUIRE(reused.size() == tensors.size());
  CHECK(reused.front().bytes.data() == memory);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(reused[i].name == tensors[i].name);
    CHECK(reused[i].bytes == tensors[i].bytes);
  }
}

TEST_CASE("a checkpoint of another model is refused with all names listed") {
  Trainee t(mlp_model({8}, 3), {2, 4});
  auto tensors = t.model.parameters().export_model();
  tensors[0].name = "fc9.weight";
  tensors[3].shape = Shape{4};
  try {
    t.model.parameters().import_model(tensors, "x.h5");
    FAIL("was accepted");
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(e.code() == ExitCode::kUsage);
    CHECK(text.find("x.h5") != std::string::npos);
    CHECK(text.find("missing: fc1.weight") != std::string::npos);
    CHECK(text.find("unknown: fc9.weight") != std::string::npos);
    CHECK(text.find("fc2.bias (float32 [4] in the file, float32 [3] in the model)") != std::string::npos);
  }
}

TEST_CASE("the last layer can be left fresh") {
  Trainee t(mlp_model({8}, 3), {2, 4});
  auto tensors = t.model.parameters().export_model();
  std::erase_if(tensors, [](const HostTensor& h) { return h.name.starts_with("fc2."); });
  CHECK_THROWS_AS(t.model.parameters().import_model(tensors, "x.h5"), Error);
  CHECK_NOTHROW(t.model.parameters().import_model(tensors, "x.h5", "fc2."));
}

TEST_CASE("backward finishes a growing prefix of the gradient buffer, all of it in the end") {
  Trainee t(resnet_model(18, Stem::kSmall, 10), {4, 3, 8, 8});
  t.model.parameters().begin_step();
  t.microbatch({4, 3, 8, 8}, 1, 4);
  CHECK(t.finished.size() == t.model.units().size());
  CHECK(std::is_sorted(t.finished.begin(), t.finished.end()));
  CHECK(t.finished.back() == t.model.parameters().gradients().size());
  CHECK(t.finished.front() > 0);
}

TEST_CASE("what backward calls final does not change afterwards") {
  Trainee t(resnet_model(18, Stem::kSmall, 10), {4, 3, 8, 8});
  t.model.parameters().begin_step();
  const Tensor x = t.images({4, 3, 8, 8}, 5);
  const Tensor y = t.model.forward(x, t.cache, Mode::kTraining);
  std::vector<std::pair<std::int64_t, std::vector<float>>> seen;
  t.model.backward(y, t.cache, [&](std::int64_t done) { seen.emplace_back(done, t.gradients()); });
  const auto last = t.gradients();
  for (const auto& [done, then] : seen) {
    CHECK(std::equal(then.begin(), then.begin() + done, last.begin()));
  }
}

TEST_CASE("gradients of two microbatches are the exact sum of each one's") {
  const Shape shape{4, 3, 8, 8};
  const auto alone = [&](std::uint64_t key) {
    Trainee t(resnet_model(18, Stem::kSmall, 10), shape);
    t.model.parameters().begin_step();
    t.microbatch(shape, key, 8);
    return t.gradients();
  };
  const auto first = alone(1);
  const auto second = alone(2);
  Trainee both(resnet_model(18, Stem::kSmall, 10), shape);
  both.model.parameters().begin_step();
  both.microbatch(shape, 1, 8);
  both.microbatch(shape, 2, 8);
  const auto sum = both.gradients();
  for (std::size_t i = 0; i < sum.size(); ++i) REQUIRE(sum[i] == first[i] + second[i]);
}

TEST_CASE("a steady step allocates no backend memory") {
  for (const bool image : {true, false}) {
    const Shape shape = image ? Shape{4, 3, 32, 32} : Shape{4, 10};
    Trainee t(image ? resnet_model(50, Stem::kImagenet, 10) : toy_model(5), shape, 2);
    const auto optimizer = make_optimizer({}, t.backend, t.model.parameters());
    std::uint64_t after_first = 0;
    for (int step = 0; step < 4; ++step) {
      t.model.parameters().begin_step();
      t.microbatch(shape, static_cast<std::uint64_t>(step), 8);
      t.microbatch(shape, static_cast<std::uint64_t>(step + 100), 8);
      optimizer->step(0.01, step, Tensor());
      t.model.parameters().update_running_statistics();
      t.model.parameters().refresh_compute();
      if (step == 0) after_first = t.backend.pool().raw_allocations();
    }
    CHECK(after_first > 0);
    CHECK(t.backend.pool().raw_allocations() == after_first);
  }
}

TEST_CASE("training is repeatable bit for bit at one thread count") {
  const auto train = [] {
    Trainee t(resnet_model(18, Stem::kSmall, 10), {8, 3, 8, 8}, 2);
    const auto optimizer = make_optimizer({}, t.backend, t.model.parameters());
    std::vector<double> losses;
    for (int step = 0; step < 5; ++step) {
      t.model.parameters().begin_step();
      losses.push_back(t.microbatch({8, 3, 8, 8}, static_cast<std::uint64_t>(step % 2), 8));
      optimizer->step(0.05, step, Tensor());
      t.model.parameters().update_running_statistics();
    }
    return losses;
  };
  const auto a = train();
  CHECK(a == train());
  CHECK(a.back() < a.front());
}

TEST_CASE("what does not fit is a usage error that names the layer") {
  const auto build = [](std::vector<Unit> units, const Shape& input) { Trainee t(std::move(units), input); };
  CHECK_THROWS_WITH_AS(build(resnet_model(18, Stem::kImagenet, 10), {2, 10}),
                       doctest::Contains("conv1: a convolution takes images"), Error);
  CHECK_THROWS_WITH_AS(build(sequential_model({{"0", LinearOptions{.out_features = 4}}}), {2, 3, 8, 8}),
                       doctest::Contains("0: a linear layer takes [N, features]"), Error);
  CHECK_THROWS_WITH_AS(
      build(sequential_model({{"c", Conv2dOptions{.out_channels = 4, .kernel_size = 9}}}), {2, 3, 8, 8}),
      doctest::Contains("c: kernel_size 9 is larger than its input of 8x8"), Error);
  CHECK_THROWS_WITH_AS(build(sequential_model({{"r", ReluOptions{}}}), {2, 3}), doctest::Contains("no parameters"),
                       Error);
}

// A model in pieces, as the stages of a pipeline hold it, or as the chunks of one of them.
TEST_CASE("a model in chunks computes what the whole one does, bit for bit, with both halves of backward apart") {
  const Shape shape{4, 3, 8, 8};
  const int units = 10;
  Trainee whole(resnet_model(18, Stem::kSmall, 10), shape);
  whole.model.parameters().begin_step();
  const Tensor x = whole.images(shape, 5);
  const Tensor y = whole.model.forward(x, whole.cache, Mode::kTraining);
  whole.model.backward(y, whole.cache, [](std::int64_t) {});
  const std::vector<HostTensor> gradients = whole.model.parameters().export_slot(whole.model.parameters().gradients());

  Model first(whole.backend, resnet_model(18, Stem::kSmall, 10), shape, 42, nullptr, {{0, 3}, {6, 8}});
  Model second(whole.backend, resnet_model(18, Stem::kSmall, 10), shape, 42, nullptr, {{3, 6}, {8, units}});
  CHECK(first.parameter_count() == whole.model.parameter_count());
  CHECK(first.chunk_output(0, shape) == second.chunk_input(0, shape));
  CHECK(first.chunk_begin(1) == 0);
  CHECK(first.chunk_end(1) == first.chunk_begin(0));
  CHECK(first.chunk_end(0) == first.parameters().gradients().size());
  Cache kept_first = first.make_cache(), kept_second = second.make_cache();
  first.parameters().begin_step();
  second.parameters().begin_step();
  int progress_calls = 0;
  const auto count = [&](std::size_t, const Tensor&) { ++progress_calls; };
  const auto progress = [&] { ++progress_calls; };
  Tensor z = first.forward(x, kept_first, Mode::kTraining, 0, count);
  z = second.forward(z, kept_second, Mode::kTraining, 0, count);
  z = first.forward(z, kept_first, Mode::kTraining, 1, count);
  z = second.forward(z, kept_second, Mode::kTraining, 1, count);
  CHECK(progress_calls == units);
  CHECK(kept_first.bytes() > 0);
  std::vector<std::int64_t> done;
  const auto unit_done = [&](std::int64_t elements) { done.push_back(elements); };
  Tensor dz = second.backward(
      z, kept_second, [](std::int64_t) {}, 1);
  dz = first.backward_input(dz, kept_first, 1, progress);
  dz = second.backward_input(dz, kept_second, 0, progress);
  dz = first.backward_input(dz, kept_first, 0, progress);
  CHECK(!dz);  // nobody needs the gradient of the network's input
  second.backward_weight(
      kept_second, [](std::int64_t) {}, 0);
  first.backward_weight(kept_first, unit_done, 1);
  CHECK(done.back() == first.chunk_end(1));
  first.backward_weight(kept_first, unit_done, 0);
  CHECK(done.back() == first.chunk_end(0));
  CHECK(kept_first.bytes() == 0);

  std::map<std::string, std::vector<std::byte>> pieces;
  for (Model* part : {&first, &second}) {
    for (const HostTensor& t : part->parameters().export_slot(part->parameters().gradients())) pieces[t.name] = t.bytes;
  }
  CHECK(pieces.size() == gradients.size());
  for (const HostTensor& t : gradients) CHECK_MESSAGE(pieces[t.name] == t.bytes, t.name);
}

TEST_CASE("units are described without being held") {
  OnednnBackend backend(1, DType::kF32);
  const auto infos = describe_units(backend, resnet_model(50, Stem::kImagenet, 1000), {2, 3, 224, 224});
  REQUIRE(infos.size() == 18);
  std::int64_t parameters = 0;
  double flops = 0;
  for (const UnitInfo& info : infos) {
    parameters += info.parameters();
    flops += info.flops;
  }
  CHECK(parameters == 25557032);  // torchvision's resnet50
  // 4.09 GMAC of convolutions and the last layer (torchvision's documentation), two operations each, two images.
  CHECK(flops == doctest::Approx(2 * 2 * 4.09e9).epsilon(0.001));
  CHECK(infos.front().name == "stem");
  CHECK(infos.back().output == Shape{2, 1000});
  CHECK(infos[1].input == infos[0].output);
}

TEST_CASE("two layers of one name are refused wherever they are held") {
  OnednnBackend backend(1, DType::kF32);
  std::vector<Unit> units = toy_model(5);
  units[1].path = "net1";
  CHECK_THROWS_AS(Model(backend, std::move(units), {4, 10}, 1, nullptr, {{1, 2}}), Error);
}
