// The same from Rust, without a crate: one query over one key, then a page id that is none.
use std::ffi::{c_void, CStr};
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::ptr::{null, null_mut};

#[repr(C)]
#[derive(Clone, Copy)]
struct DLTensor {
    data: *mut c_void,
    device: Device,
    ndim: c_int,
    dtype: DType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    device_type: c_int,
    device_id: c_int,
}
#[repr(C)]
#[derive(Clone, Copy)]
struct DType {
    code: u8,
    bits: u8,
    lanes: u16,
}
#[repr(C)]
struct Params {
    struct_size: usize,
    sm_scale: f32,
    logits_soft_cap: f32,
    causal: i32,
    window_left: i32,
    window_right: i32,
}
#[repr(C)]
struct Cache {
    struct_size: usize,
    k: *const DLTensor,
    v: *const DLTensor,
    k_scales: *const DLTensor,
    v_scales: *const DLTensor,
    layout: i32,
    head_dim_vo: i32,
    head_dim_qk: i32,
    k_scale: f32,
    v_scale: f32,
}
#[repr(C)]
struct Pages {
    struct_size: usize,
    page_table: *const DLTensor,
    cache_seqlens: *const DLTensor,
}
#[repr(C)]
struct Finding {
    struct_size: usize,
    id: *const c_char,
}

#[link(name = "shadowgraph_c")]
extern "C" {
    fn sg_version() -> *const c_char;
    fn sg_paged_attention(
        q: *const DLTensor, cache: *const Cache, pages: *const Pages, cu_seqlens_q: *const DLTensor, params: *const Params,
        out: *mut DLTensor, lse: *mut DLTensor, report: *mut *mut c_void,
    ) -> i32;
    fn sg_report_get(report: *const c_void, i: i64, out: *mut Finding) -> i32;
    fn sg_report_free(report: *mut c_void);
}

fn tensor(data: *mut c_void, code: u8, shape: &mut [i64]) -> DLTensor {
    DLTensor {
        data, device: Device { device_type: 1, device_id: 0 }, ndim: shape.len() as c_int, dtype: DType { code, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(), strides: null_mut(), byte_offset: 0,
    }
}

fn main() {
    let (mut q, mut k, mut v, mut out) = ([1f32, 2.0], [3f32, 4.0], [5f32, -6.0], [0f32; 2]);
    let (mut table, mut lens) = ([0i32], [1i32]);
    let (mut rows, mut pool, mut pair, mut one) = ([1i64, 1, 2], [1i64, 1, 1, 2], [1i64, 1], [1i64]);
    let q_t = tensor(q.as_mut_ptr().cast(), 2, &mut rows);
    let k_t = tensor(k.as_mut_ptr().cast(), 2, &mut pool);
    let v_t = tensor(v.as_mut_ptr().cast(), 2, &mut pool);
    let mut out_t = tensor(out.as_mut_ptr().cast(), 2, &mut rows);
    let table_t = tensor(table.as_mut_ptr().cast(), 0, &mut pair);
    let lens_t = tensor(lens.as_mut_ptr().cast(), 0, &mut one);
    let cache = Cache {
        struct_size: size_of::<Cache>(), k: &k_t, v: &v_t, k_scales: null(), v_scales: null(),
        layout: 0, head_dim_vo: 0, head_dim_qk: 0, k_scale: 1.0, v_scale: 1.0,
    };
    // Structs of fewer members than the header's: the rest is 0.
    let pages = Pages { struct_size: size_of::<Pages>(), page_table: &table_t, cache_seqlens: &lens_t };
    let params = Params { struct_size: size_of::<Params>(), sm_scale: 1.0, logits_soft_cap: 0.0, causal: 0, window_left: -1, window_right: -1 };
    let mut report: *mut c_void = null_mut();
    let mut run = || unsafe { sg_paged_attention(&q_t, &cache, &pages, null(), &params, &mut out_t, null_mut(), &mut report) };
    assert_eq!(run(), 0);
    println!("shadowgraph {:?}: out = {:?}", unsafe { CStr::from_ptr(sg_version()) }, out);
    assert_eq!(out, [5.0, -6.0]);

    unsafe { *(table_t.data as *mut i32) = 7 };
    assert_eq!(run(), 3);
    let mut finding = Finding { struct_size: size_of::<Finding>(), id: null() };
    assert_eq!(unsafe { sg_report_get(report, 0, &mut finding) }, 0);
    assert_eq!(unsafe { CStr::from_ptr(finding.id) }.to_str(), Ok("table.page_id"));
    unsafe { sg_report_free(report) };
}
