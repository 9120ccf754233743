// SPDX-License-Identifier: Apache-2.0
//
// Only for the implementation of hdf5.h: the C API, and the macro that turns a failed call into an Error with the file
// or data set, HDF5's message and the name of the call. The caller holds library_lock(), because the process has one
// error stack. Invariant: a negative result is never used as a value.
#pragma once

// Use the API of HDF5 1.10 in later versions, too.
#define H5_USE_110_API
#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/hdf5/hdf5.h"

namespace convoy::hdf5 {

static_assert(sizeof(hid_t) == sizeof(Id), "io/hdf5/hdf5.h holds hid_t as a 64-bit integer");

/// Throws "PLACE: HDF5's message (call)".
[[noreturn]] void throw_hdf5_error(const char* call, const std::string& place);

template <class T>
T checked(T result, const char* call, const std::string& place) {
  if (result < 0) throw_hdf5_error(call, place);
  return result;
}

/// Takes the lock and, on the first call, disables the library's printing of errors.
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock();

/// For callbacks, because no exception may pass through the C library: appends `item` to `list`, a std::vector<T>. -1
/// when memory is exhausted.
template <class T>
herr_t collect(T item, void* list) {
  try {
    static_cast<std::vector<T>*>(list)->push_back(std::move(item));
    return 0;
  } catch (...) {
    return -1;
  }
}

/// The type in memory for `dtype`.
[[nodiscard]] hid_t native_type(DType dtype);
/// Writes an attribute that is a list of texts; `place` names the file.
void put_strings(Id file, const std::string& place, const std::string& object, const std::string& name,
                 const std::vector<std::string>& values);
/// The same of numbers.
void put_numbers(Id file, const std::string& place, const std::string& object, const std::string& name,
                 const std::vector<double>& values);
/// An access list without file locks and with the format of HDF5 1.8 (checksummed metadata).
[[nodiscard]] Handle access_list(const std::string& place);

}  // namespace convoy::hdf5

/// Calls HDF5 and throws when the result is negative. `place` names the file or object.
#define CONVOY_HDF5(call, place) ::convoy::hdf5::checked((call), #call, (place))
