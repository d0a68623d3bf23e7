#include "check/runner_streams.h"

#include "graph/sim/device_status.h"

namespace shadowgraph {

RunnerStreams::RunnerStreams(SimDevice& device, const RunnerOptions& options)
    : device_(device), tap_(options.tap), forward_(device) {
  if (!options.own_streams) return;
  uploads_ = std::make_unique<Stream>(device);
  pools_ = std::make_unique<Stream>(device);
}

void RunnerStreams::wait(StreamWait wait) {
  if (uploads_ == nullptr || (tap_ != nullptr && !tap_->waits(wait))) return;
  switch (wait) {
    case StreamWait::kUploadsOnForward: return uploads_->wait_for(forward_);
    case StreamWait::kForwardOnUploads: return forward_.wait_for(*uploads_);
    case StreamWait::kPoolsOnForward: return pools_->wait_for(forward_);
    case StreamWait::kForwardOnPools: return forward_.wait_for(*pools_);
  }
}

void RunnerStreams::settle() {
  if (uploads_ == nullptr) return forward_.synchronize();
  status_.add(device_status("cudaDeviceSynchronize", device_.settle()));
}

Status RunnerStreams::take_status() {
  Status all = std::exchange(status_, {});
  for (Stream* stream : {&forward_, uploads_.get(), pools_.get()})
    if (stream != nullptr) all.add(stream->take_status());
  return all;
}

}  // namespace shadowgraph
