// The entries of a unit's table that another unit computes. They are functions of the unit itself,
// so that its table is a constant.
template <const Isa& kOther>
struct RestOf {
  static void attend(const AttendUnit& unit) { kOther.attend(unit); }
  static void fold(const FoldRows& rows) { kOther.fold(rows); }
  static void finish(const FinishRow& row) { kOther.finish(row); }
  static void merge(const MergeRows& rows) { kOther.merge(rows); }
  static void sum(const SumRows& rows) { kOther.sum(rows); }
};
