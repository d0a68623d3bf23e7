// Structs of other versions, reports, and what is no call at all.
#include <cstring>
#include <thread>

#include "c_api/decode.h"
#include "shadowgraph/version.h"

namespace shadowgraph::c_api::structs_test {
namespace {

TEST(CStructs, AShorterStructIsOneWithZerosBehindIt) {
  Decode whole, shorter;
  whole.params.arith = whole.params.num_threads = whole.params.max_seqlen_q = 0;
  shorter.params.arith = 77;  // behind the end
  shorter.params.struct_size = offsetof(sg_params, arith);
  EXPECT_EQ(whole.run(), SG_OK);
  EXPECT_EQ(shorter.run(), SG_OK) << sg_last_error();
  EXPECT_EQ(whole.out.values, shorter.out.values);
}

TEST(CStructs, ALongerStructMaySayNothingNew) {
  struct {
    sg_pages pages;
    int64_t newer;
  } longer = {SG_PAGES_INIT, 0};
  Decode d;
  longer.pages = d.pages;
  longer.pages.struct_size = sizeof longer;
  const auto run = [&] {
    return sg_paged_attention(&d.q_t, &d.cache, &longer.pages, nullptr, &d.params, &d.out_t,
                              &d.lse_t, nullptr);
  };
  EXPECT_EQ(run(), SG_OK) << sg_last_error();
  const std::vector<float> before = d.out.values;
  longer.newer = int64_t{1} << 63;
  EXPECT_EQ(run(), SG_USAGE);
  EXPECT_STREQ(sg_last_error(), "pages has members that this library does not know");
  EXPECT_EQ(d.out.values, before);
}

TEST(CStructs, WhatIsNoStructIsAWrongUse) {
  Decode d;
  const auto run = [&](const sg_cache* cache, const sg_pages* pages, const sg_params* params) {
    sg_report* report = nullptr;
    const sg_status status =
        sg_paged_attention(&d.q_t, cache, pages, nullptr, params, &d.out_t, &d.lse_t, &report);
    EXPECT_EQ(report, nullptr);
    return status;
  };
  EXPECT_EQ(run(nullptr, &d.pages, &d.params), SG_USAGE);
  EXPECT_STREQ(sg_last_error(), "cache is NULL");
  EXPECT_EQ(run(&d.cache, nullptr, &d.params), SG_USAGE);
  EXPECT_EQ(run(&d.cache, &d.pages, nullptr), SG_USAGE);
  for (const size_t size : {size_t{0}, sizeof(size_t) - 1, SIZE_MAX}) {
    Decode wrong;
    wrong.cache.struct_size = size;
    EXPECT_EQ(wrong.run(), SG_USAGE) << size;
  }
  for (const int32_t layout : {-1, SG_PANELS + 1}) {
    Decode wrong;
    wrong.cache.layout = layout;
    EXPECT_EQ(wrong.run(), SG_USAGE) << layout;
  }
  Decode wrong;
  wrong.params.arith = 2;
  EXPECT_EQ(wrong.run(), SG_USAGE);
}

TEST(CStructs, TheLastErrorIsTheThreads) {
  Decode d;
  d.params.struct_size = 0;
  EXPECT_EQ(d.run(), SG_USAGE);
  std::string of_another;
  std::thread([&] { of_another = sg_last_error(); }).join();
  EXPECT_EQ(of_another, "");
  EXPECT_STRNE(sg_last_error(), "");
}

TEST(CReports, AFindingSaysWhatTheLawSays) {
  Decode d;
  d.table.values[1] = 99;
  sg_report* report = nullptr;
  ASSERT_EQ(d.run(&report), SG_BAD_INPUT);
  ASSERT_EQ(sg_report_size(report), 1);
  sg_finding f = SG_FINDING_INIT;
  ASSERT_EQ(sg_report_get(report, 0, &f), SG_OK);
  EXPECT_STREQ(f.id, "table.page_id");
  EXPECT_STREQ(f.title, "Every page id that a visible key needs lies in the pool.");
  EXPECT_STRNE(f.mend, "");
  EXPECT_STREQ(f.field, "page_table");
  EXPECT_STREQ(f.index, "[0, 1]");
  EXPECT_STREQ(f.expected, "0 <= id < 4");
  EXPECT_STREQ(f.got, "99");
  EXPECT_STREQ(f.refs, "fa.I-29 fi.I-5 onnxruntime#32391");
  EXPECT_STREQ(f.text, "table.page_id: page_table[0, 1] is 99, expected 0 <= id < 4");
  EXPECT_STREQ(f.severity, "error");
  EXPECT_EQ(f.row, 0);
  EXPECT_EQ(f.col, 1);
  EXPECT_EQ(f.struct_size, sizeof f);
  sg_finding old = SG_FINDING_INIT;
  old.struct_size = offsetof(sg_finding, severity);
  ASSERT_EQ(sg_report_get(report, 0, &old), SG_OK);
  EXPECT_STREQ(old.id, "table.page_id");
  EXPECT_EQ(old.severity, nullptr);
  EXPECT_EQ(old.row, -1);
  EXPECT_EQ(sg_report_get(report, 1, &f), SG_USAGE);
  EXPECT_EQ(sg_report_get(report, -1, &f), SG_USAGE);
  EXPECT_EQ(sg_report_get(report, 0, nullptr), SG_USAGE);
  sg_report_free(report);
}

TEST(CReports, EveryFormatHasTheFindings) {
  Decode d;
  d.table.values[1] = 99;
  sg_report* report = nullptr;
  ASSERT_EQ(d.run(&report), SG_BAD_INPUT);
  for (const char* format : {"text", "json", "junit", "sarif", "github", "html"}) {
    const char* text = sg_report_text(report, format);
    ASSERT_NE(text, nullptr) << format;
    EXPECT_NE(std::strstr(text, "table.page_id"), nullptr) << format;
    const char* clean = sg_report_text(nullptr, format);
    ASSERT_NE(clean, nullptr) << format;
    EXPECT_EQ(std::strstr(clean, "table.page_id"), nullptr) << format;
  }
  EXPECT_NE(std::strstr(sg_report_text(report, "text"), "not clean: 1 case judged, 1 finding"),
            nullptr);
  EXPECT_NE(std::strstr(sg_report_text(nullptr, "text"), "clean: 1 case judged, 0 findings"),
            nullptr);
  EXPECT_EQ(sg_report_text(report, "pdf"), nullptr);
  EXPECT_EQ(sg_report_text(report, nullptr), nullptr);
  sg_report_free(report);
}

TEST(CReports, CasesAddUp) {
  Decode first, second;
  first.table.values[1] = 99, second.table.values[2] = 77;
  sg_report *session = nullptr, *one = nullptr, *other = nullptr;
  ASSERT_EQ(first.run(&one), SG_BAD_INPUT);
  ASSERT_EQ(second.run(&other), SG_BAD_INPUT);
  EXPECT_EQ(sg_report_add(&session, one, "test_first"), SG_OK);
  EXPECT_EQ(sg_report_add(&session, nullptr, "test_clean"), SG_OK);
  EXPECT_NE(std::strstr(sg_report_text(session, "text"), "2 cases judged, 1 finding,"), nullptr);
  EXPECT_EQ(sg_report_add(&session, other, nullptr), SG_OK);
  sg_report_free(one);
  sg_report_free(other);
  ASSERT_EQ(sg_report_size(session), 2);
  sg_finding f = SG_FINDING_INIT;
  EXPECT_EQ(sg_report_get(session, 0, &f), SG_OK);
  EXPECT_NE(std::strstr(f.text, "test_first"), nullptr);
  EXPECT_EQ(sg_report_get(session, 1, &f), SG_OK);
  EXPECT_STREQ(f.index, "[1, 0]");
  EXPECT_STREQ(f.got, "77");
  EXPECT_NE(std::strstr(sg_report_text(session, "text"), "3 cases judged, 2 findings"), nullptr);
  sg_report_free(session);
  EXPECT_EQ(sg_report_add(nullptr, nullptr, nullptr), SG_USAGE);
}

TEST(Reports, AFindingOfTheCallersOwnIsOfAListedLaw) {
  sg_report* report = nullptr;
  EXPECT_EQ(sg_report_finding(&report, "graph.no_such_law", "lens", -1, -1, "", ""), SG_USAGE);
  EXPECT_EQ(sg_report_finding(&report, "len.kv_extent", nullptr, -1, -1, "", ""), SG_USAGE);
  EXPECT_EQ(report, nullptr);
  ASSERT_EQ(sg_report_finding(&report, "graph.address_changed", "table", -1, -1, "0x10", "0x20"),
            SG_OK);
  ASSERT_EQ(sg_report_finding(&report, "mem.stale_input", "table", 2, 0, "5", "3"), SG_OK);
  ASSERT_EQ(sg_report_size(report), 2);
  sg_finding f = SG_FINDING_INIT;
  ASSERT_EQ(sg_report_get(report, 0, &f), SG_OK);
  EXPECT_STREQ(f.text, "graph.address_changed: table is 0x20, expected 0x10");
  EXPECT_STREQ(f.refs, "graph.G148");
  EXPECT_EQ(f.row, -1);
  ASSERT_EQ(sg_report_get(report, 1, &f), SG_OK);
  EXPECT_STREQ(f.text, "mem.stale_input: table[2, 0] is 3, expected 5");
  EXPECT_STREQ(f.refs, "graph.G136 graph.G144 graph.G150");
  EXPECT_NE(std::strstr(sg_report_text(report, "text"), "1 case judged, 2 findings"), nullptr)
      << sg_report_text(report, "text");
  sg_report_free(report);
}

TEST(CReports, NoReportIsOneWithoutFindings) {
  sg_finding f = SG_FINDING_INIT;
  EXPECT_EQ(sg_report_size(nullptr), 0);
  EXPECT_EQ(sg_report_get(nullptr, 0, &f), SG_USAGE);
  sg_report_free(nullptr);
  Decode d;
  d.table.values[1] = 99;
  EXPECT_EQ(d.run(nullptr), SG_BAD_INPUT);
}

TEST(CReports, VersionsAreTheHeaders) {
  EXPECT_EQ(sg_abi_version(), static_cast<uint32_t>(SG_ABI_MAJOR << 16 | SG_ABI_MINOR));
  EXPECT_STREQ(sg_version(), SHADOWGRAPH_VERSION);
}

}  // namespace
}  // namespace shadowgraph::c_api::structs_test
