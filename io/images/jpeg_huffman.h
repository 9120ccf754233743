// SPDX-License-Identifier: Apache-2.0
//
// Entropy decoding of a baseline JPEG scan (ITU T.81, F.2.2), which is most of the time that decoding a JPEG takes. One
// table look-up gives a whole coefficient, in most cases, and the zeros before it. Invariant: nothing is read outside
// the scan, and nothing is written outside the blocks, whatever the bytes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace convoy {

class HuffmanTable {
 public:
  enum class Kind { kDc, kAc };

  /// counts[n]: how many codes have n bits (1 to 16); symbols: theirs, the shortest codes' first. Returns false where
  /// these are no prefix code, or have symbols of more bits than 8-bit samples need (11 for DC, 10 for AC); the table
  /// is of no use then.
  [[nodiscard]] bool set(std::span<const std::uint8_t, 17> counts, std::span<const std::uint8_t, 256> symbols,
                         Kind kind);

  /// Of the coefficient that `bits` begin with, from the highest on: how many bits it takes, code and all, in byte 0;
  /// in byte 1 how far it is from the last one, kEndOfBlock if there is none; its value in the upper two. 0: `bits`
  /// begin with no code.
  [[nodiscard]] std::uint32_t look_up(std::uint64_t bits) const {
    const std::uint32_t entry = entries_[bits >> (64 - kLookBits)];
    return (entry & 0xFF) != 0 ? entry : look_further(bits, entry);
  }
  static constexpr std::uint32_t kEndOfBlock = 128;

 private:
  [[nodiscard]] std::uint32_t look_further(std::uint64_t bits, std::uint32_t entry) const;
  [[nodiscard]] std::uint32_t long_code(std::uint64_t bits) const;

  static constexpr int kLookBits = 10;  // of 9 to 12 the fastest

  // By the next bits: as look_up() gives it; byte 0 is 0 where the coefficient has more bits, then the upper two have
  // those of the code and those behind it; 0: the code has more, or is none.
  std::array<std::uint32_t, 1 << kLookBits> entries_{};
  std::array<std::int32_t, 17> end_{};    // of n bits: one more than the last code
  std::array<std::int32_t, 17> place_{};  // of n bits: where a symbol is, less its code
  std::array<std::uint8_t, 17> counts_{};
  std::array<std::uint8_t, 256> symbols_{};
  Kind kind_ = Kind::kDc;
  bool usable_ = false;
};

/// The blocks of one component in an MCU, and the codes of its coefficients. The tables must outlive the scan.
struct ScanComponent {
  int across = 1, down = 1;
  const HuffmanTable* dc = nullptr;
  const HuffmanTable* ac = nullptr;
};

inline constexpr int kBlockSize = 64;         ///< coefficients of a block, row by row
inline constexpr int kMaxScanComponents = 3;  ///< grey or three colours
inline constexpr int kMaxSampling = 4;        ///< blocks of a component in an MCU, across and down

/// Where a row of MCUs goes: of each component and row of its blocks the first block that is wanted.
using McuRow = std::array<std::array<std::int16_t*, kMaxSampling>, kMaxScanComponents>;

class BaselineScan {
 public:
  /// `bytes` begin behind the header of the scan and may go on behind its end. The components have ten blocks at most.
  /// restart_interval: in MCUs; 0: none.
  BaselineScan(std::span<const std::byte> bytes, std::span<const ScanComponent> components, int mcus_per_row,
               int restart_interval);

  /// Decodes the next row of MCUs; the blocks of [first, last) of them go to `row`. Returns false where the scan is not
  /// as it should be: bits that are no code, too few of them, or too many. The blocks are of no use then.
  [[nodiscard]] bool next_row(int first, int last, const McuRow& row);

 private:
  /// The bits of a scan, without the zeros that follow each byte 0xFF there.
  struct Bits {
    const std::uint8_t* at;
    const std::uint8_t* end;
    std::uint64_t next = 0;  ///< the next bits, from the highest on; below the first `count` there may be more
    int count = 0;
    int missing = 0;  ///< how many of `count` are zeros behind the end

    void refill();
    static Bits refilled_by_bytes(Bits bits);
    void skip(int bits) { next <<= bits, count -= bits; }
    [[nodiscard]] bool restart(int number);
  };
  /// One of those of an MCU.
  struct Block {
    const HuffmanTable* dc = nullptr;
    const HuffmanTable* ac = nullptr;
    std::size_t component = 0, row = 0;
    int column = 0, across = 1;  ///< of the component's in the MCU
  };
  [[nodiscard]] static bool read_block(Bits& bits, const Block& of, int& dc, std::int16_t* block);

  static constexpr std::size_t kMaxBlocks = 10;  // T.81, B.2.3

  Bits bits_;
  std::array<Block, kMaxBlocks> blocks_{};
  std::size_t block_count_ = 0;
  int mcus_per_row_, restart_interval_, until_restart_, restarts_ = 0;
  std::array<int, kMaxScanComponents> dc_{};
};

}  // namespace convoy
