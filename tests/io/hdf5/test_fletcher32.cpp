// SPDX-License-Identifier: Apache-2.0
//
// Against the filter of the HDF5 library itself: what it puts behind a chunk is what we compute.
#include <doctest/doctest.h>

#include <cstring>

#include "io/hdf5/fletcher32.h"
#include "io/hdf5/hdf5_check.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

// The checksum that HDF5 writes behind `bytes` as one chunk.
std::uint32_t by_hdf5(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  const auto guard = hdf5::lock();
  const hsize_t size = bytes.size();
  const hdf5::Handle file(CONVOY_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), path));
  const hdf5::Handle space(CONVOY_HDF5(H5Screate_simple(1, &size, nullptr), path));
  const hdf5::Handle list(CONVOY_HDF5(H5Pcreate(H5P_DATASET_CREATE), path));
  CONVOY_HDF5(H5Pset_chunk(list.id(), 1, &size), path);
  CONVOY_HDF5(H5Pset_fletcher32(list.id()), path);
  const hdf5::Handle set(
      CONVOY_HDF5(H5Dcreate2(file.id(), "x", H5T_NATIVE_UINT8, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), path));
  CONVOY_HDF5(H5Dwrite(set.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), path);
  CONVOY_HDF5(H5Dflush(set.id()), path);
  std::vector<std::uint8_t> chunk(bytes.size() + 4);
  const hsize_t origin = 0;
  std::uint32_t skipped = 0;
  CONVOY_HDF5(H5Dread_chunk(set.id(), H5P_DEFAULT, &origin, &skipped, chunk.data()), path);
  REQUIRE(skipped == 0);
  std::uint32_t checksum = 0;
  std::memcpy(&checksum, chunk.data() + bytes.size(), sizeof checksum);
  return checksum;
}

}  // namespace

TEST_CASE("fletcher32 is that of HDF5's filter") {
  const TemporaryFolder folder;
  std::uint32_t random = 1;
  for (const std::size_t size : {1, 2, 3, 31, 32, 33, 64, 719, 11520, 11521, 100003, 1 << 20}) {
    for (const int kind : {0, 1, 2, 3}) {
      std::vector<std::uint8_t> bytes(size);
      for (auto& byte : bytes) {
        random = random * 1664525U + 1013904223U;
        // Random; zeros; the largest sums; words that add up to a multiple of 65535 now and then.
        byte = std::array<std::uint8_t, 4>{static_cast<std::uint8_t>(random >> 24), 0, 0xFF,
                                           static_cast<std::uint8_t>((random >> 30) == 0 ? 0xFF : 0)}[kind];
      }
      CHECK_MESSAGE(fletcher32(std::as_bytes(std::span(bytes))) == by_hdf5(folder / "x.h5", bytes), size,
                    " bytes of kind ", kind);
    }
  }
  CHECK(fletcher32({}) == 0);
}
