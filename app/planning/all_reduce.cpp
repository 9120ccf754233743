// SPDX-License-Identifier: Apache-2.0
#include "app/planning/all_reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convoy {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double or_unlimited(double bytes_per_second) { return bytes_per_second > 0 ? bytes_per_second : kUnlimited; }

double cards_of(const Cluster& cluster) { return cluster.cards > 0 ? cluster.cards : cluster.ranks_per_node; }

double node_bandwidth(const Cluster& cluster) {
  const double own = or_unlimited(cluster.node_reduce > 0 ? cluster.node_reduce : cluster.node.bytes_per_second);
  if (cluster.node_shared <= 0 || cluster.ranks_per_node < 2) return own;
  return std::min(own, cluster.node_shared / cluster.ranks_per_node);
}

// How a group of ranks lies in the nodes.
struct Group {
  double ranks, nodes, on_node;  // on_node: of the first node, the largest number
  double groups_on_node;         // that share its network cards
};

Group group_of(const Cluster& cluster, int ranks, int stride) {
  const int per_node = cluster.ranks_per_node;
  Group group{static_cast<double>(ranks), 1, static_cast<double>(ranks), 1};
  if (per_node == 0) return group;
  group.on_node = std::min(ranks, (per_node + stride - 1) / stride);
  group.nodes = std::ceil(group.ranks / group.on_node);
  group.groups_on_node = std::min(stride, per_node);
  return group;
}

}  // namespace

Link Cluster::link(int rank_a, int rank_b) const {
  if (same_node(rank_a, rank_b)) {
    Link link = node;
    if (node_shared > 0 && ranks_per_node > 0) {
      link.bytes_per_second = std::min(or_unlimited(link.bytes_per_second), node_shared / ranks_per_node);
    }
    return link;
  }
  Link link = network;
  link.bytes_per_second *= std::min(1.0, cards_of(*this) / ranks_per_node);
  return link;
}

std::string_view to_string(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kRing: return "ring";
    case AllReduceAlgorithm::kTree: return "tree";
    case AllReduceAlgorithm::kInNetwork: return "in-network";
  }
  return "";
}

double all_reduce_seconds(const Cluster& cluster, AllReduceAlgorithm algorithm, double bytes, int ranks, int stride) {
  if (ranks < 2 || bytes <= 0) return 0;
  const Group group = group_of(cluster, ranks, stride);
  const double in_node = group.on_node > 1 ? node_bandwidth(cluster) : kUnlimited;
  const double cards = group.nodes > 1
                           ? or_unlimited(cluster.network.bytes_per_second) * cards_of(cluster) / group.groups_on_node
                           : kUnlimited;
  const double slowest = std::min(in_node, cards);
  const double near = cluster.node.latency, far = cluster.network.latency;
  switch (algorithm) {
    case AllReduceAlgorithm::kRing: {
      const double over_network = 2 * (group.nodes - 1);
      const double messages = 2 * (group.ranks - 1);
      return over_network * far + (messages - over_network) * near + messages / group.ranks * bytes / slowest;
    }
    case AllReduceAlgorithm::kTree:
      return 2 * (group.on_node - 1) * near + 2 * std::ceil(std::log2(group.nodes)) * far + 2 * bytes / slowest;
    case AllReduceAlgorithm::kInNetwork: {
      const double inside = 2 * (group.on_node - 1) / group.on_node * bytes / in_node;
      return 2 * (group.on_node - 1) * near + 2 * far + std::max(inside, bytes / cards);
    }
  }
  return 0;
}

double all_gather_seconds(const Cluster& cluster, double bytes, int ranks, int stride) {
  return all_reduce_seconds(cluster, AllReduceAlgorithm::kRing, bytes, ranks, stride) / 2;
}

AllReduceTime all_reduce_time(const Cluster& cluster, double bytes, int ranks, int stride) {
  AllReduceTime best{AllReduceAlgorithm::kRing, kUnlimited};
  for (const auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kTree, AllReduceAlgorithm::kInNetwork}) {
    const bool over_network = !cluster.same_node(0, (ranks - 1) * stride);
    if (algorithm == AllReduceAlgorithm::kInNetwork && !(cluster.in_network && over_network)) continue;
    const double seconds = all_reduce_seconds(cluster, algorithm, bytes, ranks, stride);
    if (seconds < best.seconds) best = {algorithm, seconds};
  }
  return best;
}

}  // namespace convoy
