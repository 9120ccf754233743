// SPDX-License-Identifier: Apache-2.0
//
// All links, then all data sets. Both walks start at the root and cover every object that a name leads to. Links of
// kinds that the library does not define are refused too: a plug-in decides where they lead.
#include "io/hdf5/outside_references.h"

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

constexpr std::string_view kRemedy = "files that refer to others are not read (copy the data into this file)";

struct OutsideLink {
  std::string name;
  H5L_type_t type = H5L_TYPE_ERROR;
  std::size_t value_bytes = 0;
};

// Stops at the first link that leads out of the file.
herr_t find_outside_link(hid_t, const char* name, const H5L_info_t* info, void* found) {
  if (info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT) return 0;
  try {
    *static_cast<OutsideLink*>(found) = {name, info->type, info->u.val_size};
    return 1;
  } catch (...) {
    return -1;
  }
}

herr_t collect_dataset_name(hid_t, const char* name, const H5O_info_t* info, void* names) {
  return info->type == H5O_TYPE_DATASET ? collect<std::string>(name, names) : 0;
}

// The file that an external link names, in quotes; empty if it cannot be told.
std::string target_of(Id file, const OutsideLink& link) {
  std::vector<char> value(link.value_bytes);
  const char* target = nullptr;
  const char* object = nullptr;
  unsigned flags = 0;
  if (link.type != H5L_TYPE_EXTERNAL ||
      H5Lget_val(file, link.name.c_str(), value.data(), value.size(), H5P_DEFAULT) < 0 ||
      H5Lunpack_elink_val(value.data(), value.size(), &flags, &target, &object) < 0) {
    return "";
  }
  return fmt::format(" to \"{}\"", target);
}

void refuse_links(Id file, const std::string& path) {
  OutsideLink link;
  const herr_t found = CONVOY_HDF5(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, find_outside_link, &link), path);
  if (found == 0) return;
  fail_usage("{}:/{}: is {} link{}; {}", path, link.name, link.type == H5L_TYPE_EXTERNAL ? "an external" : "an unknown",
             target_of(file, link), kRemedy);
}

// A data set that cannot be opened is reported by whoever reads it.
void refuse_dataset(Id file, const std::string& path, const std::string& name) {
  const Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  if (dataset.id() < 0) {
    H5Eclear2(H5E_DEFAULT);
    return;
  }
  const std::string place = path + ":/" + name;
  const Handle list(CONVOY_HDF5(H5Dget_create_plist(dataset.id()), place));
  if (CONVOY_HDF5(H5Pget_layout(list.id()), place) == H5D_VIRTUAL) {
    fail_usage("{}: is a virtual data set; {}", place, kRemedy);
  }
  if (CONVOY_HDF5(H5Pget_external_count(list.id()), place) == 0) return;
  std::array<char, 1024> target{};
  CONVOY_HDF5(H5Pget_external(list.id(), 0, target.size() - 1, target.data(), nullptr, nullptr), place);
  fail_usage("{}: is stored in \"{}\" (external storage); {}", place, target.data(), kRemedy);
}

}  // namespace

void refuse_outside_references(std::int64_t file, const std::string& path) {
  refuse_links(file, path);
  std::vector<std::string> datasets;
  CONVOY_HDF5(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, collect_dataset_name, &datasets, H5O_INFO_BASIC), path);
  for (const std::string& name : datasets) refuse_dataset(file, path, name);
}

}  // namespace convoy::hdf5
