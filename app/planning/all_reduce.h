// SPDX-License-Identifier: Apache-2.0
//
// How long an all-reduce takes on a cluster, by the algorithms that NCCL chooses among: a ring, trees, and sums in the
// switches of the network. Each message of m bytes costs latency + m / bandwidth (Hockney 1994). Pure functions.
#pragma once

#include <string_view>

#include "parallel/schedule/simulator.h"

namespace convoy {

/// Ranks 0, 1, ... fill the nodes in order.
struct Cluster {
  int ranks_per_node = 0;   ///< 0: all on one
  Link node;                ///< one rank to another of its node
  Link network;             ///< one network card to another
  double node_reduce = 0;   ///< bytes per second of a node's all-reduce by the bus convention (2(n-1)/n); 0: node's
  double node_shared = 0;   ///< bytes per second that all ranks of a node together send to each other; 0: no limit
  double cards = 0;         ///< network cards of a node, which its ranks share; 0: one for each rank
  bool in_network = false;  ///< switches can add up (SHARP)

  [[nodiscard]] bool same_node(int rank_a, int rank_b) const {
    return ranks_per_node == 0 || rank_a / ranks_per_node == rank_b / ranks_per_node;
  }
  /// For one message at a time of every rank: a rank's share of the cards, at most one of them.
  [[nodiscard]] Link link(int rank_a, int rank_b) const;
};

enum class AllReduceAlgorithm { kRing, kTree, kInNetwork };
[[nodiscard]] std::string_view to_string(AllReduceAlgorithm algorithm);

/// Seconds of summing `bytes` over `ranks` ranks that lie `stride` apart, while the ranks between them do the same in
/// groups of their own. With n ranks, N nodes and m ranks of the group on a node:
/// - ring (Thakur et al. 2005): 2(n-1) messages, 2(N-1) of them over the network; 2(n-1)/n of the bytes pass each link;
/// - tree (double binary trees over nodes, Sanders et al. 2009, chains in them): 2(m-1) messages in nodes and 2 log2 N
///   over the network; twice the bytes pass each link;
/// - in-network (Graham et al. 2016): 2(m-1) messages in nodes and 2 to the switches; the bytes pass each card once in
///   each direction.
[[nodiscard]] double all_reduce_seconds(const Cluster& cluster, AllReduceAlgorithm algorithm, double bytes, int ranks,
                                        int stride);

/// Of a ring's all-gather to `bytes` on each rank, or its reduce-scatter from so many: the two halves of an all-reduce.
[[nodiscard]] double all_gather_seconds(const Cluster& cluster, double bytes, int ranks, int stride);

struct AllReduceTime {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  double seconds = 0;
};
/// The fastest that the cluster has. One rank and no bytes take no time.
[[nodiscard]] AllReduceTime all_reduce_time(const Cluster& cluster, double bytes, int ranks, int stride);

}  // namespace convoy
