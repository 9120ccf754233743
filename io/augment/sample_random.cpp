// SPDX-License-Identifier: Apache-2.0
#include "io/augment/sample_random.h"

#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr std::uint64_t kNormals = 0x6e6f726d616c7321ULL;  // makes the key of normal numbers from that of uniform ones

}  // namespace

SampleRandom::SampleRandom(std::uint64_t seed, const SampleId& sample, std::string_view purpose)
    : key_(random_bits(random_bits(random_key(seed, purpose), static_cast<std::uint64_t>(sample.epoch)),
                       static_cast<std::uint64_t>(sample.index))) {
  if (sample.repetition > 0) {
    key_ = random_bits(random_key(key_, "repetition"), static_cast<std::uint64_t>(sample.repetition));
  }
}

double SampleRandom::uniform(double low, double high) { return low + (high - low) * random_uniform(key_, counter_++); }

double SampleRandom::normal() { return random_normal(key_ ^ kNormals, counter_++); }

int SampleRandom::below(int count) { return static_cast<int>(random_uniform(key_, counter_++) * count); }

}  // namespace convoy
