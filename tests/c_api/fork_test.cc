// A process that was forked after a call.
#include <sys/wait.h>
#include <unistd.h>

#include "c_api/decode.h"

namespace shadowgraph::c_api::fork_test {
namespace {

TEST(CSettings, AForkedProcessGoesOnWithOneThread) {
  Decode d;
  d.params.num_threads = 2;
  ASSERT_EQ(d.run(), SG_OK);
  d.params.num_threads = 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // OpenMP waits for threads that are not there
    sg_set_num_threads(1);
    _exit(d.run() == SG_OK ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace shadowgraph::c_api::fork_test
