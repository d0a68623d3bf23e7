#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "io/safetensors_bytes.h"
#include "io/temporary_folder.h"

namespace shadowgraph::safetensors_test {
namespace {

using Laws = std::vector<std::string>;

constexpr std::string_view kSmallHeader =
    R"({"__metadata__":{"note":"two"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"I32","shape":[3],"data_offsets":[8,20]}})";
const Bytes kSmall =
    file_of(kSmallHeader, std::string_view("\0\0\x80\x3f\0\0\0\x40\1\0\0\0\2\0\0\0\3\0\0\0", 20));

std::string tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}";
}
Bytes one_tensor(std::string_view dtype, std::string_view shape, std::string_view offsets,
                 size_t data) {
  return file_of(R"({"t":)" + tensor(dtype, shape, offsets) + "}", std::string(data, 'x'));
}

bool same_tensor(const ConstTensorView& a, const ConstTensorView& b) {
  return a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape && a.stride == b.stride &&
         (a.numel() == 0 ||
          std::memcmp(a.data, b.data, static_cast<size_t>(a.numel()) * size_of(a.dtype)) == 0);
}
bool same_tensors(const TensorMap& a, const TensorMap& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && same_tensor(x.second, y.second);
  });
}

TEST(Safetensors, ReadsWhatTheHeaderSays) {
  SafetensorsFile file;
  ASSERT_EQ(parse_bytes(kSmall, &file).to_string(), "ok");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.metadata, (MetadataMap{{"note", "two"}}));
  const float a[2] = {1, 2};
  const int32_t b[3] = {1, 2, 3};
  EXPECT_TRUE(same_tensor(file.tensors.at("a"), ConstTensorView(a, DType::kF32, {2, 1})));
  EXPECT_TRUE(same_tensor(file.tensors.at("b"), ConstTensorView(b, DType::kI32, {3})));
}

// --- parse(write(x)) = x

struct Generated {
  std::vector<std::unique_ptr<Bytes>> memory;
  TensorMap tensors;
};

Generated generate_tensors() {
  Generated g;
  const auto name = rc::gen::container<std::string>(rc::gen::inRange<char>(0x20, 0x7f));
  for (const std::string& n : *rc::gen::container<std::set<std::string>>(name)) {
    if (n == "__metadata__") continue;
    const auto dtype = static_cast<DType>(*rc::gen::inRange(0, static_cast<int>(DType::kBool) + 1));
    ConstTensorView t(nullptr, dtype, {1});
    t.rank = *rc::gen::inRange(1, ConstTensorView::kMaxRank + 1);
    for (int axis = 0; axis < t.rank; ++axis) t.shape[axis] = *rc::gen::inRange(0, 4);
    int64_t step = 1;
    for (int axis = t.rank - 1; axis >= 0; --axis)
      t.stride[axis] = std::exchange(step, step * t.shape[axis]);
    const size_t size = static_cast<size_t>(t.numel()) * size_of(dtype);
    const auto values =
        *rc::gen::container<std::vector<uint8_t>>(size, rc::gen::arbitrary<uint8_t>());
    g.memory.push_back(std::make_unique<Bytes>(size));
    if (size > 0) std::memcpy(g.memory.back()->data(), values.data(), size);
    t.data = g.memory.back()->data();
    g.tensors.emplace(n, t);
  }
  return g;
}

RC_GTEST_PROP(Safetensors, ParseAfterWriteIsTheSame, ()) {
  const Generated g = generate_tensors();
  MetadataMap metadata;
  const auto text = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 0x7f));
  for (const std::string& value : *rc::gen::container<std::vector<std::string>>(text)) {
    metadata.emplace("key " + std::to_string(metadata.size()), value);
  }
  Bytes bytes;
  RC_ASSERT(serialize_safetensors(g.tensors, metadata, &bytes).ok());
  SafetensorsFile file;
  RC_ASSERT(parse_bytes(bytes, &file).ok());
  RC_ASSERT(file.metadata == metadata);
  RC_ASSERT(file.skipped.empty());
  RC_ASSERT(same_tensors(file.tensors, g.tensors));
}

TEST(Safetensors, FileOnDiskIsTheFileInMemory) {
  const TemporaryFolder folder;
  SafetensorsFile small, read;
  ASSERT_TRUE(parse_bytes(kSmall, &small).ok());
  ASSERT_EQ(write_safetensors(folder / "f", small.tensors, small.metadata).to_string(), "ok");
  ASSERT_EQ(read_safetensors(folder / "f", &read).to_string(), "ok");
  EXPECT_TRUE(same_tensors(read.tensors, small.tensors));
  EXPECT_EQ(read.metadata, small.metadata);
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, WriterAlignsEveryTensorToItsElement) {
  SafetensorsFile odd, file;
  ASSERT_TRUE(parse_bytes(file_of(R"({"a":)" + tensor("U8", "[3]", "[0,3]") + R"(,"b":)" +
                                      tensor("F64", "[1]", "[3,11]") + "}",
                                  "abcdefghijk"),
                          &odd)
                  .ok());
  Bytes bytes;
  ASSERT_TRUE(serialize_safetensors(odd.tensors, {}, &bytes).ok());
  ASSERT_TRUE(parse_bytes(bytes, &file).ok());
  EXPECT_TRUE(same_tensors(file.tensors, odd.tensors));
  EXPECT_EQ((file.tensors.at("b").data - file.bytes->data()) % 8, 0);
}

TEST(Safetensors, WriterRefusesStridedTensorsAndBadNames) {
  const float values[4] = {};
  const ConstTensorView column(values, DType::kF32, {2}, {2}), dense(values, DType::kF32, {4});
  Bytes bytes = as_bytes("before");
  EXPECT_EQ(serialize_safetensors({{"t", column}}, {}, &bytes).findings()[0].id, "input.stride");
  EXPECT_EQ(serialize_safetensors({{"\xff", dense}}, {}, &bytes).findings()[0].id, "io.header");
  EXPECT_EQ(serialize_safetensors({{"a\nb", dense}}, {}, &bytes).findings()[0].id, "io.key");
  EXPECT_EQ(bytes, as_bytes("before"));
}

// --- damage

TEST(Safetensors, TruncationAtEveryByteIsAFinding) {
  for (size_t n = 0; n < kSmall.size(); ++n) {
    SafetensorsFile file;
    file.metadata["kept"] = "yes";
    const Status status =
        parse_bytes(Bytes(kSmall.begin(), kSmall.begin() + static_cast<ptrdiff_t>(n)), &file);
    EXPECT_FALSE(status.ok()) << n;
    EXPECT_EQ(file.metadata.size(), 1u) << "out was touched at " << n;
  }
}

TEST(Safetensors, TrailingByteIsAFinding) {
  Bytes longer = kSmall;
  longer.push_back(std::byte{0});
  EXPECT_EQ(laws_broken(longer), Laws{"io.offsets"});
}

// A name or a text may change, for nothing protects them; a tensor's place, type or shape may not.
TEST(Safetensors, BitFlipInTheHeaderIsAnErrorOrKeepsEveryTensor) {
  SafetensorsFile whole;
  ASSERT_TRUE(parse_bytes(kSmall, &whole).ok());
  std::vector<ConstTensorView> originals;
  for (const auto& [name, t] : whole.tensors) originals.push_back(t);
  int refused = 0;
  for (size_t bit = 0; bit < 8 * (8 + kSmallHeader.size()); ++bit) {
    Bytes flipped = kSmall;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    SafetensorsFile file;
    if (!parse_bytes(flipped, &file).ok()) {
      ++refused;
      continue;
    }
    EXPECT_EQ(file.tensors.size() + file.skipped.size(), originals.size()) << bit;
    for (const auto& [name, t] : file.tensors) {
      EXPECT_TRUE(
          std::any_of(originals.begin(), originals.end(),
                      [&, &view = t](const ConstTensorView& o) { return same_tensor(o, view); }))
          << bit;
    }
  }
  EXPECT_GT(refused, 0);
}

// --- the classes of hostile files

TEST(Safetensors, HeaderLengthIsHeldAgainstTheFileBeforeItIsUsed) {
  Bytes huge = kSmall;
  std::fill(huge.begin(), huge.begin() + 8, std::byte{0xff});
  EXPECT_EQ(laws_broken(huge), Laws{"io.header"});
  Bytes beyond = kSmall;
  beyond[1] = std::byte{0x10};  // + 4096
  EXPECT_EQ(laws_broken(beyond), Laws{"io.truncated"});
}

TEST(Safetensors, HeaderMustBeAnObjectFromItsFirstByte) {
  for (const char* header :
       {"", " {}", "[]", "null", "{", "{}}", "{} {}", "{\"a\":}", "{\"a\" 1}", "\xef\xbb\xbf{}"}) {
    EXPECT_EQ(laws_broken(file_of(header, "")), Laws{"io.header"}) << header;
  }
  EXPECT_EQ(laws_broken(file_of(std::string_view("{}\0x", 4), "")), Laws{"io.header"});
  EXPECT_EQ(laws_broken(file_of("{}   ", "")), Laws{});
}

TEST(Safetensors, ShapeMustBeSmallWholeNumbers) {
  for (const char* shape :
       {"[1099511627777]", "[9223372036854775808]", "[18446744073709551616]", "[-1]", "[1.0]",
        "[1e0]", "[\"1\"]", "[null]", "7", "{}", "[1,1,1,1,1,1,1,1,1]"}) {
    EXPECT_EQ(laws_broken(one_tensor("U8", shape, "[0,1]", 1)), Laws{"io.shape"}) << shape;
  }
}

TEST(Safetensors, ProductOfTheShapeMayNotWrap) {
  // 2^40 * 2^24 and the element size: 0 modulo 2^64.
  EXPECT_EQ(laws_broken(one_tensor("F32", "[1099511627776,16777216]", "[0,0]", 0)),
            Laws{"io.shape"});
  EXPECT_EQ(laws_broken(one_tensor("F32", "[0,1099511627776,1099511627776]", "[0,0]", 0)),
            Laws{"io.shape"});
  EXPECT_EQ(laws_broken(one_tensor("F32", "[2]", "[0,4]", 4)), Laws{"io.shape"});
  EXPECT_EQ(laws_broken(one_tensor("I16", "[2]", "[0,3]", 3)), Laws{"io.shape"});
}

TEST(Safetensors, OffsetsMustLieInTheFile) {
  for (const char* offsets :
       {"[4,0]", "[0,5]", "[0]", "[0,4,4]", "[]", "4", "[-4,0]", "[0,18446744073709551616]",
        "[18446744073709551612,18446744073709551615]", "[0,4.0]"}) {
    EXPECT_EQ(laws_broken(one_tensor("F32", "[1]", offsets, 4)), Laws{"io.offsets"}) << offsets;
  }
}

TEST(Safetensors, TensorsCoverTheDataExactlyOnce) {
  const auto pair = [](const char* a, const char* b) {
    return file_of(R"({"a":)" + tensor("U8", "[4]", a) + R"(,"b":)" + tensor("U8", "[4]", b) + "}",
                   std::string(8, 'x'));
  };
  EXPECT_EQ(laws_broken(pair("[0,4]", "[4,8]")), Laws{});
  EXPECT_EQ(laws_broken(pair("[4,8]", "[0,4]")), Laws{});
  EXPECT_EQ(laws_broken(pair("[0,4]", "[2,6]")),
            (Laws{"io.offsets", "io.offsets"}));  // an overlap, and a hole
  EXPECT_EQ(laws_broken(pair("[0,4]", "[0,4]")), (Laws{"io.offsets", "io.offsets"}));
  EXPECT_EQ(laws_broken(one_tensor("U8", "[4]", "[1,5]", 5)), Laws{"io.offsets"});
  EXPECT_EQ(laws_broken(one_tensor("U8", "[4]", "[0,4]", 5)), Laws{"io.offsets"});
  EXPECT_EQ(laws_broken(file_of("{}", "x")), Laws{"io.offsets"});
}

TEST(Safetensors, KeysOccurOnceAtEveryLevel) {
  const std::string t = tensor("U8", "[0]", "[0,0]");
  EXPECT_EQ(laws_broken(file_of(R"({"a":)" + t + R"(,"a":)" + t + "}", "")), Laws{"io.key"});
  EXPECT_EQ(laws_broken(file_of(R"({"a":)" + t + R"(,"\u0061":)" + t + "}", "")), Laws{"io.key"});
  EXPECT_EQ(laws_broken(file_of(
                R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "")),
            Laws{"io.key"});
  EXPECT_EQ(laws_broken(file_of(R"({"__metadata__":{"k":"1","k":"2"}})", "")), Laws{"io.key"});
  EXPECT_EQ(laws_broken(file_of(R"({"__metadata__":{},"__metadata__":{}})", "")), Laws{"io.key"});
  EXPECT_EQ(laws_broken(file_of(R"({"a":1,"a":{"b":{},"b":{"c":1,"c":2,"d":3}}})", "")),
            (Laws{"io.key", "io.key", "io.key"}));
}

TEST(Safetensors, KeysArePrintableAndShort) {
  const auto named = [](const std::string& key) {
    return laws_broken(file_of("{\"" + key + "\":" + tensor("U8", "[0]", "[0,0]") + "}", ""));
  };
  EXPECT_EQ(named("\\u001b[2J"), Laws{"io.key"});
  EXPECT_EQ(named("a\\u0000b"), Laws{"io.key"});
  EXPECT_EQ(named("\\u007f"), Laws{"io.key"});
  EXPECT_EQ(named("\\u009b"), Laws{"io.key"});
  EXPECT_EQ(named(std::string(1025, 'k')), Laws{"io.key"});
  EXPECT_EQ(named(std::string(1024, 'k')), Laws{});
  EXPECT_EQ(named("\xc3\xa9"), Laws{});
  for (const char* bad : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\\ud800", "\n"}) {
    EXPECT_EQ(named(bad), Laws{"io.header"}) << bad;
  }
}

TEST(Safetensors, FindingsCarryNoControlCharacters) {
  SafetensorsFile file;
  const Status status = parse_bytes(file_of("{\"\\u001b[2J\":\"\\u0007\"}", ""), &file);
  ASSERT_FALSE(status.ok());
  const std::string text = status.to_string();
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || (c >= 0x20 && c < 0x7f);
  })) << text;
}

TEST(Safetensors, DepthAndNumberOfValuesAreBounded) {
  EXPECT_EQ(laws_broken(file_of(R"({"a":)" + std::string(100'000, '['), "")), Laws{"io.header"});
  std::string many = R"({"a":[0)";
  for (int i = 0; i < 2'000'000; ++i) many += ",0";
  EXPECT_EQ(laws_broken(file_of(many + "]}", "")), Laws{"io.header"});
  std::string keys = R"({"__metadata__":{)";
  for (int i = 0; i <= 100'000; ++i)
    keys += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":"")";
  EXPECT_EQ(laws_broken(file_of(keys + "}}", "")), Laws{"io.key"});
}

TEST(Safetensors, EntriesHaveTheirThreeFieldsAndNoOther) {
  for (const char* entry : {"1", "[]", "{}", R"({"dtype":"U8","shape":[0]})",
                            R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1})"}) {
    EXPECT_EQ(laws_broken(file_of(std::string(R"({"a":)") + entry + "}", "")), Laws{"io.header"})
        << entry;
  }
  EXPECT_EQ(laws_broken(file_of(R"({"a":{"dtype":7,"shape":[0],"data_offsets":[0,0]}})", "")),
            Laws{"io.dtype"});
  EXPECT_EQ(laws_broken(file_of(R"({"__metadata__":{"k":1}})", "")), Laws{"io.header"});
  EXPECT_EQ(laws_broken(file_of(R"({"__metadata__":[]})", "")), Laws{"io.header"});
}

TEST(Safetensors, EveryBadTensorIsNamed) {
  SafetensorsFile file;
  const Status status = parse_bytes(
      file_of(R"({"a":)" + tensor("U8", "[-1]", "[0,0]") + R"(,"b":)" +
                  tensor("U8", "[0]", "[0,99]") + R"(,"c":)" + tensor("U8", "[3]", "[0,0]") + "}",
              ""),
      &file);
  ASSERT_EQ(status.findings().size(), 3u) << status.to_string();
  const char* names[] = {"a", "b", "c"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(status.findings()[i].where.field, names[i]);
    EXPECT_NE(status.findings()[i].got.find("header byte"), std::string::npos);
  }
}

// --- legal corners

TEST(Safetensors, WhatAViewCannotHoldIsSkippedWithItsReason) {
  SafetensorsFile file;
  ASSERT_EQ(parse_bytes(file_of(R"({"new":)" + tensor("F4", "[2]", "[0,1]") + R"(,"u16":)" +
                                    tensor("U16", "[1]", "[1,3]") + R"(,"deep":)" +
                                    tensor("U8", "[1,1,1,1,1,1]", "[3,4]") + R"(,"read":)" +
                                    tensor("U8", "[1]", "[4,5]") + "}",
                                "abcde"),
                        &file)
                .to_string(),
            "ok");
  EXPECT_EQ(file.tensors.size(), 1u);
  ASSERT_EQ(file.skipped.size(), 3u);
  EXPECT_EQ(file.skipped[0], (SkippedTensor{"new", "dtype F4 is not known"}));
  EXPECT_EQ(file.skipped[1].name, "u16");
  EXPECT_EQ(file.skipped[2].name, "deep");
}

TEST(Safetensors, ZeroSizesAndScalarsAreLegal) {
  SafetensorsFile file;
  ASSERT_EQ(parse_bytes(file_of(R"({"empty":)" + tensor("F32", "[0,5]", "[0,0]") + R"(,"scalar":)" +
                                    tensor("U8", "[]", "[0,1]") + "}",
                                "a"),
                        &file)
                .to_string(),
            "ok");
  EXPECT_EQ(file.tensors.at("empty").numel(), 0);
  EXPECT_EQ(file.tensors.at("scalar").rank, 1);
  EXPECT_EQ(file.tensors.at("scalar").shape[0], 1);
  EXPECT_EQ(laws_broken(file_of("{}", "")), Laws{});
}

// --- paths

TEST(Safetensors, OnlyRegularFilesAreOpenedAndNothingBlocks) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder / "missing", folder / "fifo", folder.path().string(),
                                  std::string("/dev/zero"), std::string()}) {
    SafetensorsFile file;
    const Status status = read_safetensors(path, &file);
    ASSERT_EQ(status.findings().size(), 1u) << path;
    EXPECT_EQ(status.findings()[0].id, "io.open") << path;
  }
}

TEST(Safetensors, HugeFileIsRefusedBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  std::ofstream(folder / "sparse").put('x');
  std::error_code error;
  std::filesystem::resize_file(folder / "sparse", uint64_t{1} << 42, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  SafetensorsFile file;
  const Status status = read_safetensors(folder / "sparse", &file);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "io.memory");
}

TEST(Safetensors, WriteFailureLeavesNothingBehind) {
  const TemporaryFolder folder;
  const Status missing = write_safetensors(folder / "no/such/folder", {}, {});
  ASSERT_EQ(missing.findings().size(), 1u);
  EXPECT_EQ(missing.findings()[0].id, "io.write");
  std::filesystem::create_directory(folder / "taken");
  EXPECT_FALSE(write_safetensors(folder / "taken", {}, {}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace shadowgraph::safetensors_test
