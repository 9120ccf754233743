// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files of other programs (contiguous, compressed, other types and byte orders), written with the C API.
// Invariant: what cannot be written fails the test.
#pragma once

#include <doctest/doctest.h>
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/io/checkpoint/sample_checkpoint.h"

namespace convoy::test {

enum class Storage { kContiguous, kChunked, kCompressed };

// A file under construction through the C API.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    REQUIRE(file_ >= 0);
  }
  ~RawFile() { H5Fclose(file_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  void group(const char* name) { H5Gclose(H5Gcreate2(file_, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)); }
  void write(const char* name, const std::vector<hsize_t>& dims, hid_t file_type, hid_t type, const void* data,
             Storage storage = Storage::kContiguous) {
    const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (storage != Storage::kContiguous) {
      auto chunk = dims;
      chunk[0] = (chunk[0] + 2) / 3;
      H5Pset_chunk(list, static_cast<int>(dims.size()), chunk.data());
    }
    if (storage == Storage::kCompressed) H5Pset_deflate(list, 4);
    const hid_t set = H5Dcreate2(file_, name, file_type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    REQUIRE(set >= 0);
    REQUIRE(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(set);
    H5Pclose(list);
    H5Sclose(space);
  }
  void names(const char* object, const std::vector<const char*>& values) {
    const hsize_t count = values.size();
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &count, nullptr);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t attribute =
        H5Acreate_by_name(file_, object, "class_names", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, values.data());
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
  }
  void images(const char* name, hsize_t n, Storage storage = Storage::kContiguous) {
    const HostTensor tensor = random_tensor("images", {static_cast<std::int64_t>(n), 4, 5, 3}, DType::kU8, 1);
    write(name, {n, 4, 5, 3}, H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, tensor.bytes.data(), storage);
  }
  void labels(const char* name, const std::vector<std::int64_t>& values, hid_t file_type = H5T_STD_I64LE) {
    write(name, {values.size()}, file_type, H5T_NATIVE_INT64, values.data());
  }

 private:
  hid_t file_;
};

}  // namespace convoy::test
