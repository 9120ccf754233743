// SPDX-License-Identifier: Apache-2.0
//
// A data file in several: "out-00002-of-00004.h5" is the third of the four shards of out.h5. Their names, and how the
// shards that a pattern ("out-*.h5") means are found. Relies on the file system alone. Invariant: a set of shards is
// used whole or not at all.
#pragma once

#include <string>
#include <vector>

namespace convoy {

/// More have no name of five digits.
inline constexpr int kMaxShards = 99999;

/// Of shard `index` of `count` of the data file `output`: its extension stays at the end.
[[nodiscard]] std::string shard_path(const std::string& output, int index, int count);

/// One pattern for all of them: "out-*-of-00004.h5".
[[nodiscard]] std::string shard_pattern(const std::string& output, int count);

/// The files there that are shards of `output`, of whatever count, with `ending` behind their names.
[[nodiscard]] std::vector<std::string> shards_there(const std::string& output, const std::string& ending);

/// Whether `path` is a pattern: its file name has a '*' in it, and no file is called that.
[[nodiscard]] bool is_shard_pattern(const std::string& path);

/// The files that match the pattern, sorted, whether they are shards or not: '*' stands for any characters of a file
/// name. None when it is no pattern or its folder cannot be listed.
[[nodiscard]] std::vector<std::string> matching_shards(const std::string& pattern);

/// The shards that the pattern means, in order. Throws an Error of bad
/// input unless they are one whole set.
[[nodiscard]] std::vector<std::string> find_shards(const std::string& pattern);

/// The files of a source of samples: FILE or FILE:/GROUP gives itself, PATTERN or PATTERN:/GROUP each of its shards,
/// with the group.
[[nodiscard]] std::vector<std::string> shard_sources(const std::string& source);

}  // namespace convoy
