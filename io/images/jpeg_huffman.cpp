// SPDX-License-Identifier: Apache-2.0
#include "io/images/jpeg_huffman.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "layers/base/cpu_features.h"

namespace convoy {

namespace {

constexpr int kRefilled = 56;  // bits that there are at least after a refill; two coefficients take 52 at most
constexpr int kMaxDcBits = 11, kMaxAcBits = 10;
constexpr int kMaxDc = 32767;  // libjpeg stores 16 bits

// The position in the block, row by row, of each coefficient in the order of the file (zigzag; T.81, figure 5).
constexpr std::array<std::uint8_t, kBlockSize> kOrder = [] {
  std::array<std::uint8_t, kBlockSize> order{};
  std::size_t at = 0;
  for (int diagonal = 0; diagonal < 15; ++diagonal) {
    for (int i = 0; i <= diagonal; ++i) {
      const int row = diagonal % 2 == 0 ? diagonal - i : i, column = diagonal - row;
      if (row < 8 && column < 8) order[at++] = static_cast<std::uint8_t>(8 * row + column);
    }
  }
  return order;
}();

// Without the coefficient; see HuffmanTable::entries_.
std::uint32_t code_entry(int code_bits, std::uint8_t symbol, HuffmanTable::Kind kind) {
  const std::uint32_t run = symbol >> 4, size = symbol & 15;
  const bool ends = kind == HuffmanTable::Kind::kAc && size == 0 && run != 15;  // 15: sixteen zeros
  return (ends ? HuffmanTable::kEndOfBlock : run + 1) << 8 | static_cast<std::uint32_t>(code_bits) << 16 | size << 24;
}

// With the coefficient that follows the code (T.81, F.2.2.1, EXTEND): one of n bits is positive if it begins with 1,
// else 2^n - 1 too large.
std::uint32_t with_coefficient(std::uint32_t entry, std::uint64_t bits) {
  const std::uint32_t code_bits = entry >> 16 & 0xFF, size = entry >> 24;
  const std::uint64_t behind = bits << code_bits;
  int value = size == 0 ? 0 : static_cast<int>(behind >> (64 - size));
  if (behind >> 63 == 0) value -= (1 << size) - 1;
  return (code_bits + size) | (entry & 0xFF00) | static_cast<std::uint32_t>(value) << 16;
}

constexpr int bits_of(std::uint32_t entry) { return static_cast<int>(entry & 63); }
constexpr std::uint32_t advance_of(std::uint32_t entry) { return entry >> 8 & 0xFF; }
constexpr std::int16_t value_of(std::uint32_t entry) { return static_cast<std::int16_t>(entry >> 16); }

// Whether one of eight bytes is 0xFF.
bool has_ff(std::uint64_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  return ((~bytes - kOnes) & bytes & (kOnes << 7)) != 0;
}

}  // namespace

bool HuffmanTable::set(std::span<const std::uint8_t, 17> counts, std::span<const std::uint8_t, 256> symbols,
                       Kind kind) {
  if (usable_ && kind == kind_ && std::ranges::equal(counts.subspan(1), std::span(counts_).subspan(1)) &&
      std::ranges::equal(symbols, symbols_)) {
    return true;  // most files have the same
  }
  std::ranges::copy(counts, counts_.begin());
  std::ranges::copy(symbols, symbols_.begin());
  kind_ = kind;
  usable_ = false;
  entries_.fill(0);
  std::int32_t code = 0, place = 0;
  for (int bits = 1; bits <= 16; ++bits, code *= 2) {
    const auto n = static_cast<std::size_t>(bits);
    place_[n] = place - code;
    end_[n] = code + counts[n];
    if (end_[n] > 1 << bits || place + counts[n] > 256) return false;
    for (; code < end_[n]; ++code, ++place) {
      const std::uint8_t symbol = symbols_[static_cast<std::size_t>(place)];
      if (kind == Kind::kDc ? symbol > kMaxDcBits : (symbol & 15) > kMaxAcBits) return false;
      if (bits > kLookBits) continue;
      const std::uint32_t without = code_entry(bits, symbol, kind);
      const int behind = kLookBits - bits;
      for (std::int32_t rest = 0; rest < 1 << behind; ++rest) {
        const std::int32_t next = code << behind | rest;
        const std::uint32_t entry = with_coefficient(without, static_cast<std::uint64_t>(next) << (64 - kLookBits));
        entries_[static_cast<std::size_t>(next)] = bits_of(entry) <= kLookBits ? entry : without;
      }
    }
  }
  usable_ = true;
  return true;
}

std::uint32_t HuffmanTable::look_further(std::uint64_t bits, std::uint32_t entry) const {
  if (entry == 0) entry = long_code(bits);
  return entry == 0 ? 0 : with_coefficient(entry, bits);
}

std::uint32_t HuffmanTable::long_code(std::uint64_t bits) const {
  for (int n = kLookBits + 1; n <= 16; ++n) {
    const auto code = static_cast<std::int32_t>(bits >> (64 - n));
    const auto length = static_cast<std::size_t>(n);
    if (code >= end_[length]) continue;
    const std::int32_t place = place_[length] + code;
    return code_entry(n, symbols_[static_cast<std::size_t>(place)], kind_);
  }
  return 0;
}

inline void BaselineScan::Bits::refill() {
  if (end - at >= 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, at, sizeof bytes);
    if (!has_ff(bytes)) {
      if constexpr (std::endian::native == std::endian::little) bytes = __builtin_bswap64(bytes);
      next |= bytes >> count;
      at += (63 - count) >> 3;
      count |= kRefilled;  // whole bytes more
      return;
    }
  }
  *this = refilled_by_bytes(*this);
}

// Takes a copy: if its address escaped, the caller's could not stay in registers.
BaselineScan::Bits BaselineScan::Bits::refilled_by_bytes(Bits bits) {
  for (; bits.count < kRefilled; bits.count += 8) {
    std::uint64_t byte = 0;
    if (bits.at < bits.end && *bits.at != 0xFF) {
      byte = *bits.at++;
    } else if (bits.end - bits.at >= 2 && bits.at[1] == 0) {
      byte = 0xFF;
      bits.at += 2;
    } else {
      bits.missing += 8;
    }
    bits.next |= byte << (kRefilled - bits.count);
  }
  return bits;
}

// T.81, E.2.4: up to seven bits fill the last byte, then comes the marker.
inline bool BaselineScan::Bits::restart(int number) {
  const int left = count - missing;
  if (left < 0 || left > 7 || end - at < 2 || at[0] != 0xFF || at[1] != 0xD0 + number) return false;
  *this = {at + 2, end};
  return true;
}

inline bool BaselineScan::read_block(Bits& bits, const Block& of, int& dc, std::int16_t* block) {
  bits.refill();
  const std::uint32_t first = of.dc->look_up(bits.next);
  if (first == 0) return false;
  bits.skip(bits_of(first));
  dc += value_of(first);
  if (dc > kMaxDc || dc < -kMaxDc) return false;
  block[0] = static_cast<std::int16_t>(dc);
  for (std::uint32_t k = 0;;) {
    bits.refill();
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t entry = of.ac->look_up(bits.next);
      if (entry == 0) return false;
      bits.skip(bits_of(entry));
      k += advance_of(entry);
      if (k >= kBlockSize - 1) {
        if (k > kBlockSize - 1) return k >= HuffmanTable::kEndOfBlock;
        block[kBlockSize - 1] = value_of(entry);
        return true;
      }
      block[kOrder[k]] = value_of(entry);
    }
  }
}

BaselineScan::BaselineScan(std::span<const std::byte> bytes, std::span<const ScanComponent> components,
                           int mcus_per_row, int restart_interval)
    : bits_{reinterpret_cast<const std::uint8_t*>(bytes.data()),
            reinterpret_cast<const std::uint8_t*>(bytes.data()) + bytes.size()},
      mcus_per_row_(mcus_per_row),
      restart_interval_(restart_interval),
      until_restart_(restart_interval) {
  for (std::size_t c = 0; c < components.size(); ++c) {
    const ScanComponent& component = components[c];
    for (int row = 0; row < component.down; ++row) {
      for (int column = 0; column < component.across; ++column) {
        blocks_[block_count_++] = {component.dc, component.ac,    c, static_cast<std::size_t>(row),
                                   column,       component.across};
      }
    }
  }
}

bool BaselineScan::marker_follows() const {
  const std::uint8_t *at = bits_.at, *end = bits_.end;
  while ((at = std::find(at, end, 0xFF)) != end) {
    if (++at != end && *at != 0) return true;
  }
  return false;
}

CONVOY_VECTORIZED bool BaselineScan::next_row(int first, int last, const McuRow& row) {
  std::array<std::int16_t, kBlockSize> unwanted;
  Bits bits = bits_;
  for (int mcu = 0; mcu < mcus_per_row_; ++mcu) {
    if (restart_interval_ > 0 && until_restart_-- == 0) {
      if (!bits.restart(restarts_++ % 8)) return false;
      until_restart_ = restart_interval_ - 1;
      dc_.fill(0);
    }
    const bool wanted = mcu >= first && mcu < last;
    for (std::size_t b = 0; b < block_count_; ++b) {
      const Block& of = blocks_[b];
      std::int16_t* block = unwanted.data();
      if (wanted) {
        const int place = (mcu - first) * of.across + of.column;
        block = row[of.component][of.row] + std::ptrdiff_t{place} * kBlockSize;
        std::memset(block, 0, kBlockSize * sizeof *block);
      }
      if (!read_block(bits, of, dc_[of.component], block)) return false;
    }
  }
  bits_ = bits;
  return bits.count >= bits.missing;
}

}  // namespace convoy
