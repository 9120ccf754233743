// SPDX-License-Identifier: Apache-2.0
//
// The caching pool: blocks come back to those who ask for their size, and reserved ones do not.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <set>

#include "layers/base/error.h"
#include "layers/base/tensor.h"

using namespace convoy;

namespace {

class Heap final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void release(void* data) noexcept override { std::free(data); }
};

Tensor take(MemoryPool& pool, std::int64_t count) { return {pool.acquire(4 * count), {count}, DType::kF32}; }

}  // namespace

TEST_CASE("a freed block is handed out again, a reserved one only after its reservation") {
  Heap heap;
  MemoryPool pool(heap);
  void* before = take(pool, 100).raw();
  CHECK(take(pool, 100).raw() == before);
  CHECK(pool.raw_allocations() == 1);

  pool.begin_reservation();
  CHECK_THROWS_AS(pool.begin_reservation(), Error);
  const Tensor kept = take(pool, 500);  // still held at the end: not reserved
  void* temporary = take(pool, 100).raw();
  CHECK(temporary == before);
  CHECK(take(pool, 100).raw() == before);  // twice within: still one block
  const Tensor two[] = {take(pool, 100), take(pool, 200)};
  std::set<void*> reserved{two[0].raw()};
  auto reservation = [&] {
    Tensor released = take(pool, 300);
    reserved.insert(released.raw());
    released.reset();
    return pool.end_reservation();
  }();
  const std::uint64_t count = pool.raw_allocations();
  const Tensor other = take(pool, 300);
  CHECK_FALSE(reserved.contains(other.raw()));
  CHECK(pool.raw_allocations() == count + 1);
  reservation.reset();
  const Tensor back = take(pool, 300);
  CHECK(reserved.contains(back.raw()));
  CHECK(pool.raw_allocations() == count + 1);

  pool.begin_reservation();  // nothing acquired: nothing reserved
  const auto empty = pool.end_reservation();
  CHECK(pool.raw_allocations() == count + 1);
}

TEST_CASE("works that are recorded share the memory of their temporaries") {
  Heap heap;
  MemoryPool pool(heap);
  pool.begin_reservation();
  void* temporary = take(pool, 300).raw();
  auto first = pool.end_reservation();
  const std::uint64_t count = pool.raw_allocations();

  pool.begin_reservation();
  CHECK(take(pool, 300).raw() == temporary);
  CHECK(take(pool, 300).raw() == temporary);
  auto second = pool.end_reservation();
  CHECK(pool.raw_allocations() == count);
  const Tensor other = take(pool, 300);
  CHECK(other.raw() != temporary);

  pool.begin_reservation();  // two at a time: one is new
  {
    const Tensor two[] = {take(pool, 300), take(pool, 300)};
    CHECK(two[0].raw() == temporary);
  }
  auto third = pool.end_reservation();
  CHECK(pool.raw_allocations() == count + 2);

  first.reset();
  third.reset();
  const Tensor of_third[] = {take(pool, 300), take(pool, 300)};
  for (const Tensor& x : of_third) CHECK(x.raw() != temporary);  // the second work still writes it
  second.reset();
  CHECK(take(pool, 300).raw() == temporary);
}

TEST_CASE("what recorded work has acquired and kept is not handed out when it is freed") {
  Heap heap;
  MemoryPool pool(heap);
  pool.begin_reservation();
  Tensor kept = take(pool, 300);
  void* memory = kept.raw();
  auto reservation = pool.end_reservation();
  kept.reset();  // the work still writes it
  CHECK(take(pool, 300).raw() != memory);
  kept = take(pool, 300);
  reservation.reset();
  CHECK(take(pool, 300).raw() == memory);
}

TEST_CASE("free blocks are given back to the system, held and reserved ones are not") {
  Heap heap;
  MemoryPool pool(heap);
  const Tensor held = take(pool, 100);
  pool.begin_reservation();
  void* temporary = take(pool, 2000).raw();
  CHECK_THROWS_AS(pool.release_free(), Error);
  auto reservation = pool.end_reservation();
  take(pool, 300).reset();
  const std::size_t peak = pool.bytes_held();
  pool.release_free();
  CHECK(pool.bytes_held() == 448 + 8192);  // 400 and 8000 bytes, rounded up
  CHECK(pool.peak_bytes() == peak);
  reservation.reset();
  CHECK(take(pool, 2000).raw() == temporary);
  const std::uint64_t count = pool.raw_allocations();
  take(pool, 300).reset();
  CHECK(pool.raw_allocations() == count + 1);
  take(pool, 300).reset();
  CHECK(pool.raw_allocations() == count + 1);
}
