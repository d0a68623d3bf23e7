// The fields of a node's parameters, listed once: visit_node_fields(v, params) calls v(name, field)
// for each. The bindings have as many names as the structs have members, so a member that is added
// to one does not compile until it stands here, too.
#pragma once

#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

template <class V>
void visit_node_fields(V& v, KernelLaunch& params) {
  auto& [kernel, grid, block, shared_bytes, args, programmatic] = params;
  v("kernel", kernel);
  const auto shape = [&](const char* const(&names)[3], Dim3& dim) {
    auto& [x, y, z] = dim;
    v(names[0], x);
    v(names[1], y);
    v(names[2], z);
  };
  shape({"grid.x", "grid.y", "grid.z"}, grid);
  shape({"block.x", "block.y", "block.z"}, block);
  v("shared_bytes", shared_bytes);
  v("args", args);
  v("programmatic", programmatic);
}
template <class V>
void visit_node_fields(V& v, MemcpyParams& params) {
  auto& [dst, src, width, height, dst_pitch, src_pitch, kind] = params;
  v("dst", dst);
  v("src", src);
  v("width", width);
  v("height", height);
  v("dst_pitch", dst_pitch);
  v("src_pitch", src_pitch);
  v("kind", kind);
}
template <class V>
void visit_node_fields(V& v, MemsetParams& params) {
  auto& [dst, value, element_size, width, height, pitch] = params;
  v("dst", dst);
  v("value", value);
  v("element_size", element_size);
  v("width", width);
  v("height", height);
  v("pitch", pitch);
}
template <class V>
void visit_node_fields(V& v, HostParams& params) {
  auto& [fn, user_data] = params;
  v("fn", fn);
  v("user_data", user_data);
}
template <class V>
void visit_node_fields(V& v, ChildGraphParams& params) {
  auto& [graph] = params;
  v("graph", graph);
}
template <class V>
void visit_node_fields(V& /*v*/, EmptyParams& /*params*/) {
  static_assert(std::is_empty_v<EmptyParams>);
}
template <class V>
void visit_node_fields(V& v, EventRecordParams& params) {
  auto& [event] = params;
  v("event", event);
}
template <class V>
void visit_node_fields(V& v, EventWaitParams& params) {
  auto& [event] = params;
  v("event", event);
}
/// The address is the call's that adds the node: it is no field of the caller's.
template <class V>
void visit_node_fields(V& v, MemAllocParams& params) {
  auto& [bytes, address] = params;
  (void)address;
  v("bytes", bytes);
}
template <class V>
void visit_node_fields(V& v, MemFreeParams& params) {
  auto& [address] = params;
  v("address", address);
}
/// So are the bodies.
template <class V>
void visit_node_fields(V& v, ConditionalParams& params) {
  auto& [handle, type, size, bodies] = params;
  (void)bodies;
  v("handle", handle);
  v("type", type);
  v("size", size);
}
template <class V>
void visit_node_fields(V& v, NodeParams& params) {
  std::visit([&](auto& p) { visit_node_fields(v, p); }, params);
}

}  // namespace shadowgraph
