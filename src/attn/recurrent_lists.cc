// Lists that calls over recurrent states take: the parents of a draft tree, and Mamba2's chunks.
// Tested by tests/attn/recurrent_lists_test.cc.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "attn/validate/batch_check.h"
#include "attn/validate/tensor_check.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {
namespace {

constexpr int32_t kNone = -1;

/// One row's tree, walked from each token to its children.
class TreeWalk {
 public:
  TreeWalk(TensorCheck& c, std::span<const int32_t> first_child,
           std::span<const int32_t> next_sibling, std::span<int32_t> parents, int64_t first)
      : c_(c),
        first_child_(first_child),
        next_sibling_(next_sibling),
        parents_(parents),
        first_(first) {}

  /// parents: kNone before; afterwards those of the row, if it is sound.
  void run() {
    const int64_t steps = std::ssize(parents_);
    if (next_sibling_[0] != kNone)
      fail("next_sibling", 0, "-1: the root has none", next_sibling_[0]);
    for (int64_t t = 0; t < steps; ++t) walk(t);
    for (int64_t t = 1; t < steps; ++t) {
      if (parent(t) == kNone) fail("first_child", t, "a token that names it", "none does");
    }
    parents_[0] = 0;
  }

 private:
  int32_t& parent(int64_t token) const { return parents_[static_cast<size_t>(token)]; }

  /// Ends though siblings may be a cycle: a token is taken once.
  void walk(int64_t token) {
    const char* field = "first_child";
    int64_t at = token;
    int32_t child = first_child_[static_cast<size_t>(token)];
    while (child != kNone) {
      if (child <= token || child >= std::ssize(parents_)) {
        fail(field, at, std::to_string(token) + " < id < " + std::to_string(parents_.size()),
             child);
        return;
      }
      if (parent(child) != kNone) {
        fail(field, at, "a token of no other",
             std::to_string(child) + ", child of " + std::to_string(parent(child)));
        return;
      }
      parent(child) = static_cast<int32_t>(token);
      field = "next_sibling", at = child;
      child = next_sibling_[static_cast<size_t>(child)];
    }
  }

  void fail(const char* field, int64_t token, std::string expected, std::string got) {
    c_.fail("mask.tree", at(field, first_ + token), std::move(expected), std::move(got));
  }
  void fail(const char* field, int64_t token, std::string expected, int32_t got) {
    fail(field, token, std::move(expected), std::to_string(got));
  }

  TensorCheck& c_;
  std::span<const int32_t> first_child_, next_sibling_;
  std::span<int32_t> parents_;
  int64_t first_;  // of the row, in the arrays of all
};

/// Arrays of one length, whole rows of it. False: there is nothing to walk.
bool check_trees(TensorCheck& c, std::span<const int32_t> first_child,
                 std::span<const int32_t> next_sibling, int64_t steps, std::span<int32_t> parents) {
  bool ok = c.span("first_child", first_child);
  ok &= c.span("next_sibling", next_sibling);
  ok &= c.written("parents", parents);
  const auto fail = [&](const char* field, std::string expected, int64_t got) {
    c.fail("len.batch", at(field), std::move(expected), std::to_string(got));
    ok = false;
  };
  const std::string entries = std::to_string(first_child.size()) + " entries";
  if (steps < 1) {
    fail("steps", ">= 1", steps);
  } else if (std::ssize(first_child) % steps != 0) {
    fail("first_child", "rows of " + std::to_string(steps), std::ssize(first_child));
  }
  if (next_sibling.size() != first_child.size())
    fail("next_sibling", entries, std::ssize(next_sibling));
  if (parents.size() != first_child.size()) fail("parents", entries, std::ssize(parents));
  c.no_aliases();
  return ok;
}

/// visit(first token) of every run of tokens that lies in one row and in one chunk.
template <class Visit>
void for_each_run(std::span<const int32_t> cu_seqlens_q, int64_t chunk_size, const Visit& visit) {
  for (size_t r = 0; r + 1 < cu_seqlens_q.size(); ++r) {
    const int64_t end = cu_seqlens_q[r + 1];
    for (int64_t t = cu_seqlens_q[r]; t < end; t += chunk_size - t % chunk_size) visit(t);
  }
}

/// False: runs cannot be counted.
bool check_chunks(TensorCheck& c, std::span<const int32_t> cu_seqlens_q, int32_t chunk_size,
                  const ChunkList* list) {
  bool ok = c.span("cu_seqlens_q", cu_seqlens_q);
  const int64_t rows = std::max<int64_t>(0, std::ssize(cu_seqlens_q) - 1);
  ok = ok && check_indptr(c, "cu_seqlens_q", cu_seqlens_q, rows, kAny);
  if (chunk_size < 1) {
    c.fail("input.shape", at("chunk_size"), ">= 1", std::to_string(chunk_size));
    ok = false;
  }
  if (list == nullptr) {
    c.fail("input.null", at("list"), "a list", "null");
    return false;
  }
  ok &= c.written("list.indices", list->indices);
  ok &= c.written("list.offsets", list->offsets);
  c.no_aliases();
  return ok;
}

}  // namespace

Status tree_parents(std::span<const int32_t> first_child, std::span<const int32_t> next_sibling,
                    int64_t steps, std::span<int32_t> parents) noexcept {
  try {
    Status status;
    TensorCheck c(&status);
    if (!check_trees(c, first_child, next_sibling, steps, parents)) return status;
    std::vector<int32_t> found(parents.size(), kNone);
    const auto width = static_cast<size_t>(steps);
    for (size_t first = 0; first < found.size(); first += width) {
      TreeWalk(c, first_child.subspan(first, width), next_sibling.subspan(first, width),
               std::span(found).subspan(first, width), static_cast<int64_t>(first))
          .run();
    }
    if (status.ok()) std::copy(found.begin(), found.end(), parents.begin());
    return status;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than a vector can hold
  }
  return Status::out_of_memory();
}

Status chunk_list(std::span<const int32_t> cu_seqlens_q, int32_t chunk_size,
                  ChunkList* list) noexcept {
  try {
    Status status;
    TensorCheck c(&status);
    if (!check_chunks(c, cu_seqlens_q, chunk_size, list)) return status;
    int64_t size = 0;
    for_each_run(cu_seqlens_q, chunk_size, [&](int64_t) { ++size; });
    const auto check_room = [&](const char* field, std::span<int32_t> room) {
      if (std::ssize(room) >= size) return;
      c.fail("input.memory", at(field), std::to_string(size) + " entries",
             std::to_string(room.size()));
    };
    check_room("list.indices", list->indices);
    check_room("list.offsets", list->offsets);
    list->size = size;
    if (!status.ok()) return status;
    size_t next = 0;
    for_each_run(cu_seqlens_q, chunk_size, [&](int64_t first) {
      list->indices[next] = static_cast<int32_t>(first / chunk_size);
      list->offsets[next] = static_cast<int32_t>(first % chunk_size);
      ++next;
    });
    return status;
  } catch (const std::bad_alloc&) {
  }
  return Status::out_of_memory();
}

}  // namespace shadowgraph
