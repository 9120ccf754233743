// SPDX-License-Identifier: Apache-2.0
//
// Entropy decoding of a baseline JPEG scan (ITU T.81, F.2.2), which is most of the time that decoding a JPEG takes. A
// scan is a series of MCUs (minimum coded units), from left to right and top to bottom: some blocks of 8x8 coefficients
// of each colour component. A block has a DC coefficient, coded as the difference from the last block's, and up to 63
// AC coefficients, each coded with the number of zeros before it. One table look-up decodes most of them. Invariant:
// nothing is read outside the scan, and nothing is written outside the blocks, whatever the bytes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace convoy {

/// The Huffman codes of DC or AC coefficients.
class HuffmanTable {
 public:
  enum class Kind { kDc, kAc };

  /// counts[n]: how many codes have n bits (1 to 16); symbols: theirs, the shortest codes' first. Returns false where
  /// these are no prefix code, or have symbols of more bits than 8-bit samples need (11 for DC, 10 for AC);the table
  /// must not be used then.
  [[nodiscard]] bool set(std::span<const std::uint8_t, 17> counts, std::span<const std::uint8_t, 256> symbols,
                         Kind kind);

  /// Decodes the coefficient at the top of `bits`. Byte 0: how many bits it takes, code and value; byte 1: its distance
  /// from the previous coefficient, or kEndOfBlock; upper 16 bits: its value. Returns 0 if no code matches.
  [[nodiscard]] std::uint32_t look_up(std::uint64_t bits) const {
    const std::uint32_t entry = entries_[bits >> (64 - kLookBits)];
    return (entry & 0xFF) != 0 ? entry : look_further(bits, entry);
  }
  static constexpr std::uint32_t kEndOfBlock = 128;

 private:
  [[nodiscard]] std::uint32_t look_further(std::uint64_t bits, std::uint32_t entry) const;
  [[nodiscard]] std::uint32_t long_code(std::uint64_t bits) const;

  static constexpr int kLookBits = 10;  // fastest of 9 to 12

  // Indexed by the next kLookBits bits: what look_up() returns. If byte 0 is 0 but the entry is not, the code fits in
  // these bits and the value does not: then byte 2 holds the code's length and byte 3 the value's.
  std::array<std::uint32_t, 1 << kLookBits> entries_{};
  std::array<std::int32_t, 17> end_{};    // [n]: one past the last code of n bits
  std::array<std::int32_t, 17> place_{};  // [n]: add to a code of n bits for its index in symbols_
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
inline constexpr int kMaxBlocksInMcu = 10;    ///< of all components (T.81, B.2.3)

/// Where a row of MCUs goes: of each component and row of its blocks the first block that is wanted.
using McuRow = std::array<std::array<std::int16_t*, kMaxSampling>, kMaxScanComponents>;

/// Reads a scan, a row of MCUs at a time.
class BaselineScan {
 public:
  /// `bytes` begin behind the header of the scan and may go on behind its end. The components have kMaxBlocksInMcu
  /// blocks at most. restart_interval: in MCUs; 0: none.
  BaselineScan(std::span<const std::byte> bytes, std::span<const ScanComponent> components, int mcus_per_row,
               int restart_interval);

  /// Decodes the next row of MCUs and writes the blocks of MCUs [first, last) to `row`. Returns false if the scan is
  /// damaged: bits that are no code, too few of them, or too many before a restart. The blocks must not be used then.
  [[nodiscard]] bool next_row(int first, int last, const McuRow& row);

  /// Whether there is a marker behind what has been read: a file that ends without one was cut off.
  [[nodiscard]] bool marker_follows() const;

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
  /// One block of an MCU.
  struct Block {
    const HuffmanTable* dc = nullptr;
    const HuffmanTable* ac = nullptr;
    std::size_t component = 0, row = 0;
    int column = 0, across = 1;  ///< which of `across` blocks of the component
  };
  [[nodiscard]] static bool read_block(Bits& bits, const Block& of, int& dc, std::int16_t* block);

  Bits bits_;
  std::array<Block, kMaxBlocksInMcu> blocks_{};
  std::size_t block_count_ = 0;
  int mcus_per_row_, restart_interval_, until_restart_, restarts_ = 0;
  std::array<int, kMaxScanComponents> dc_{};
};

}  // namespace convoy
