//! libibverbs as far as RDMA writes need it. Input: nothing but the library; output: safe types, each of which gives back what
//! it holds when it goes.
//!
//! The structures are those of rdma-core's `infiniband/verbs.h`; `tests/verbs_abi.rs` holds [`layout`] to it. Posting and polling
//! are not symbols of the library but inline functions of that header, which call through the device's context.

#![allow(unsafe_code)]

use crate::agent::library::{Library, Scope, functions};
use crate::agent::verbs::LIBRARY;
use crate::facts::loopback::{Step, StepError};
use crate::facts::run::{Failure, LoadedLibrary};
use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Only ever behind a pointer that the library gave.
type Opaque = c_void;

/// `struct ibv_device`, without what follows `dev_name`.
#[repr(C)]
pub struct DeviceHead {
    ops: [*mut Opaque; 2],
    node_type: c_int,
    transport_type: c_int,
    name: [c_char; 64],
    dev_name: [c_char; 64],
}

/// `struct ibv_context_ops`: the three that are called, at their places among the others.
#[repr(C)]
pub struct ContextOps {
    before_poll_cq: [*mut Opaque; 11],
    poll_cq: Option<unsafe extern "C" fn(*mut CqHead, c_int, *mut WorkCompletion) -> c_int>,
    before_post_send: [*mut Opaque; 13],
    post_send: Option<unsafe extern "C" fn(*mut QpHead, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    post_recv: Option<unsafe extern "C" fn(*mut QpHead, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int>,
    after_post_recv: [*mut Opaque; 5],
}

/// `struct ibv_context`, without what follows `ops`.
#[repr(C)]
pub struct ContextHead {
    device: *mut DeviceHead,
    ops: ContextOps,
}

/// `struct ibv_mr`
#[repr(C)]
pub struct MemoryRegion {
    context: *mut ContextHead,
    pd: *mut Opaque,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    lkey: u32,
    rkey: u32,
}

/// `struct ibv_cq`, its first field.
#[repr(C)]
pub struct CqHead {
    context: *mut ContextHead,
}

/// `struct ibv_qp`, without what follows `qp_num`.
#[repr(C)]
pub struct QpHead {
    context: *mut ContextHead,
    qp_context: *mut c_void,
    pd: *mut Opaque,
    send_cq: *mut CqHead,
    recv_cq: *mut CqHead,
    srq: *mut Opaque,
    handle: u32,
    qp_num: u32,
}

/// `struct ibv_device_attr`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [u8; 64],
    /// In network order.
    pub node_guid: [u8; 8],
    pub sys_image_guid: [u8; 8],
    pub max_mr_size: u64,
    page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    device_cap_flags: u32,
    pub max_sge: c_int,
    max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    /// `max_qp_rd_atom` to `max_srq_sge`
    others: [c_int; 20],
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`. The library's own `ibv_query_port` leaves out `port_cap_flags2`, which newer headers added.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub max_msg_sz: u32,
    bad_pkey_cntr: u32,
    qkey_viol_cntr: u32,
    pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    pub link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

/// Room behind a [`PortAttr`], for a library that knows more than this header.
#[repr(C)]
struct RoomyPortAttr {
    known: PortAttr,
    room: [u8; 64],
}

/// `struct ibv_qp_cap`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`
#[repr(C)]
pub struct QpInitAttr {
    qp_context: *mut c_void,
    send_cq: *mut CqHead,
    recv_cq: *mut CqHead,
    srq: *mut Opaque,
    cap: QpCap,
    qp_type: c_int,
    sq_sig_all: c_int,
}

/// `union ibv_gid`, which asks for the alignment of a 64-bit number.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct RawGid([u8; 16]);

/// `struct ibv_global_route`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    dgid: RawGid,
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
}

/// `struct ibv_ah_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AddressAttr {
    grh: GlobalRoute,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
}

/// `struct ibv_qp_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    qp_state: c_int,
    cur_qp_state: c_int,
    path_mtu: c_int,
    path_mig_state: c_int,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    cap: QpCap,
    ah_attr: AddressAttr,
    alt_ah_attr: AddressAttr,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    rate_limit: u32,
}

/// `struct ibv_sge`
#[repr(C)]
pub struct ScatterGather {
    addr: u64,
    length: u32,
    lkey: u32,
}

/// `struct ibv_send_wr`, of whose unions only the parts for an RDMA write are named.
#[repr(C)]
pub struct SendRequest {
    wr_id: u64,
    next: *mut SendRequest,
    sg_list: *mut ScatterGather,
    num_sge: c_int,
    opcode: c_int,
    send_flags: u32,
    /// In network order.
    imm_data: [u8; 4],
    remote_addr: u64,
    rkey: u32,
    rest: [u64; 9],
}

/// `struct ibv_recv_wr`
#[repr(C)]
pub struct ReceiveRequest {
    wr_id: u64,
    next: *mut ReceiveRequest,
    sg_list: *mut ScatterGather,
    num_sge: c_int,
}

/// `struct ibv_wc`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WorkCompletion {
    wr_id: u64,
    status: c_int,
    opcode: c_int,
    vendor_err: u32,
    byte_len: u32,
    imm_data: [u8; 4],
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// Numbers of the header.
mod number {
    use std::ffi::c_int;

    pub const TRANSPORT_IB: c_int = 0;
    pub const TRANSPORT_IWARP: c_int = 1;
    pub const QPT_RC: c_int = 2;
    pub const QPS_INIT: c_int = 1;
    pub const QPS_RTR: c_int = 2;
    pub const QPS_RTS: c_int = 3;
    pub const QP_STATE: c_int = 1;
    pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
    pub const QP_PKEY_INDEX: c_int = 1 << 4;
    pub const QP_PORT: c_int = 1 << 5;
    pub const QP_AV: c_int = 1 << 7;
    pub const QP_PATH_MTU: c_int = 1 << 8;
    pub const QP_TIMEOUT: c_int = 1 << 9;
    pub const QP_RETRY_CNT: c_int = 1 << 10;
    pub const QP_RNR_RETRY: c_int = 1 << 11;
    pub const QP_RQ_PSN: c_int = 1 << 12;
    pub const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub const QP_MIN_RNR_TIMER: c_int = 1 << 15;
    pub const QP_SQ_PSN: c_int = 1 << 16;
    pub const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const QP_DEST_QPN: c_int = 1 << 20;
    pub const ACCESS_LOCAL_WRITE: c_int = 1;
    pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
    pub const WR_RDMA_WRITE: c_int = 0;
    pub const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub const SEND_SIGNALED: u32 = 1 << 1;
    pub const WC_SUCCESS: c_int = 0;
    pub const WC_RECV_RDMA_WITH_IMM: c_int = 129;
    pub const WC_RETRY_EXC_ERR: c_int = 12;
    pub const PORT_ACTIVE: c_int = 4;
    pub const LINK_LAYER_INFINIBAND: u8 = 1;
    pub const LINK_LAYER_ETHERNET: u8 = 2;
}

pub use number::{LINK_LAYER_ETHERNET, LINK_LAYER_INFINIBAND, PORT_ACTIVE, WC_RETRY_EXC_ERR};

/// What this module takes the header to say: for the test that asks the header, in C's words.
pub fn layout() -> Vec<(&'static str, i64)> {
    macro_rules! table {
        (
            $( $ty:ident = $c:literal { $($field:ident $(= $cfield:literal)?),* } )*
        ) => {
            vec![ $( $( (
                table!(@name $c, $field $(, $cfield)?),
                i64::try_from(offset_of!($ty, $field)).unwrap_or(-1),
            ), )* )* ]
        };
        (@name $c:literal, $field:ident, $cfield:literal) => { concat!("offsetof(", $c, ", ", $cfield, ")") };
        (@name $c:literal, $field:ident) => { concat!("offsetof(", $c, ", ", stringify!($field), ")") };
    }
    macro_rules! sizes {
        ( $( $ty:ident = $c:literal )* ) => {
            [ $( (concat!("sizeof(", $c, ")"), i64::try_from(size_of::<$ty>()).unwrap_or(-1)), )* ]
        };
    }
    let mut known = table! {
        DeviceHead = "struct ibv_device" { node_type, transport_type, name, dev_name }
        ContextHead = "struct ibv_context" { device, ops }
        ContextOps = "struct ibv_context_ops" { poll_cq, post_send, post_recv }
        MemoryRegion = "struct ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        CqHead = "struct ibv_cq" { context }
        QpHead = "struct ibv_qp" { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
        DeviceAttr = "struct ibv_device_attr" {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr,
            device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, others = "max_qp_rd_atom", max_pkeys,
            local_ca_ack_delay, phys_port_cnt
        }
        PortAttr = "struct ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, pkey_tbl_len, lid,
            sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer,
            flags, port_cap_flags2
        }
        QpCap = "struct ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        QpInitAttr = "struct ibv_qp_init_attr" { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        GlobalRoute = "struct ibv_global_route" { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        AddressAttr = "struct ibv_ah_attr" { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        QpAttr = "struct ibv_qp_attr" {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr,
            alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic,
            min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit
        }
        ScatterGather = "struct ibv_sge" { addr, length, lkey }
        SendRequest = "struct ibv_send_wr" {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, remote_addr = "wr.rdma.remote_addr", rkey = "wr.rdma.rkey"
        }
        ReceiveRequest = "struct ibv_recv_wr" { wr_id, next, sg_list, num_sge }
        WorkCompletion = "struct ibv_wc" {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits
        }
    };
    known.extend(sizes! {
        ContextOps = "struct ibv_context_ops"
        MemoryRegion = "struct ibv_mr"
        DeviceAttr = "struct ibv_device_attr"
        PortAttr = "struct ibv_port_attr"
        QpInitAttr = "struct ibv_qp_init_attr"
        RawGid = "union ibv_gid"
        AddressAttr = "struct ibv_ah_attr"
        QpAttr = "struct ibv_qp_attr"
        ScatterGather = "struct ibv_sge"
        SendRequest = "struct ibv_send_wr"
        ReceiveRequest = "struct ibv_recv_wr"
        WorkCompletion = "struct ibv_wc"
    });
    known.extend([
        ("IBV_TRANSPORT_IB", number::TRANSPORT_IB.into()),
        ("IBV_TRANSPORT_IWARP", number::TRANSPORT_IWARP.into()),
        ("IBV_QPT_RC", number::QPT_RC.into()),
        ("IBV_QPS_INIT", number::QPS_INIT.into()),
        ("IBV_QPS_RTR", number::QPS_RTR.into()),
        ("IBV_QPS_RTS", number::QPS_RTS.into()),
        ("IBV_QP_STATE", number::QP_STATE.into()),
        ("IBV_QP_ACCESS_FLAGS", number::QP_ACCESS_FLAGS.into()),
        ("IBV_QP_PKEY_INDEX", number::QP_PKEY_INDEX.into()),
        ("IBV_QP_PORT", number::QP_PORT.into()),
        ("IBV_QP_AV", number::QP_AV.into()),
        ("IBV_QP_PATH_MTU", number::QP_PATH_MTU.into()),
        ("IBV_QP_TIMEOUT", number::QP_TIMEOUT.into()),
        ("IBV_QP_RETRY_CNT", number::QP_RETRY_CNT.into()),
        ("IBV_QP_RNR_RETRY", number::QP_RNR_RETRY.into()),
        ("IBV_QP_RQ_PSN", number::QP_RQ_PSN.into()),
        ("IBV_QP_MAX_QP_RD_ATOMIC", number::QP_MAX_QP_RD_ATOMIC.into()),
        ("IBV_QP_MIN_RNR_TIMER", number::QP_MIN_RNR_TIMER.into()),
        ("IBV_QP_SQ_PSN", number::QP_SQ_PSN.into()),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", number::QP_MAX_DEST_RD_ATOMIC.into()),
        ("IBV_QP_DEST_QPN", number::QP_DEST_QPN.into()),
        ("IBV_ACCESS_LOCAL_WRITE", number::ACCESS_LOCAL_WRITE.into()),
        ("IBV_ACCESS_REMOTE_WRITE", number::ACCESS_REMOTE_WRITE.into()),
        ("IBV_WR_RDMA_WRITE", number::WR_RDMA_WRITE.into()),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", number::WR_RDMA_WRITE_WITH_IMM.into()),
        ("IBV_SEND_SIGNALED", number::SEND_SIGNALED.into()),
        ("IBV_WC_SUCCESS", number::WC_SUCCESS.into()),
        ("IBV_WC_RECV_RDMA_WITH_IMM", number::WC_RECV_RDMA_WITH_IMM.into()),
        ("IBV_WC_RETRY_EXC_ERR", number::WC_RETRY_EXC_ERR.into()),
        ("IBV_PORT_ACTIVE", number::PORT_ACTIVE.into()),
        ("IBV_LINK_LAYER_INFINIBAND", number::LINK_LAYER_INFINIBAND.into()),
        ("IBV_LINK_LAYER_ETHERNET", number::LINK_LAYER_ETHERNET.into()),
    ]);
    known
}

functions! {
    /// The functions in use (`infiniband/verbs.h`, all since IBVERBS_1.1).
    Functions {
        devices = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut DeviceHead;
        free_devices = c"ibv_free_device_list": fn(*mut *mut DeviceHead);
        open = c"ibv_open_device": fn(*mut DeviceHead) -> *mut ContextHead;
        close = c"ibv_close_device": fn(*mut ContextHead) -> c_int;
        query_device = c"ibv_query_device": fn(*mut ContextHead, *mut DeviceAttr) -> c_int;
        query_port = c"ibv_query_port": fn(*mut ContextHead, u8, *mut PortAttr) -> c_int;
        query_gid = c"ibv_query_gid": fn(*mut ContextHead, u8, c_int, *mut RawGid) -> c_int;
        alloc_pd = c"ibv_alloc_pd": fn(*mut ContextHead) -> *mut Opaque;
        dealloc_pd = c"ibv_dealloc_pd": fn(*mut Opaque) -> c_int;
        reg_mr = c"ibv_reg_mr": fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut MemoryRegion;
        dereg_mr = c"ibv_dereg_mr": fn(*mut MemoryRegion) -> c_int;
        create_cq = c"ibv_create_cq": fn(*mut ContextHead, c_int, *mut c_void, *mut c_void, c_int) -> *mut CqHead;
        destroy_cq = c"ibv_destroy_cq": fn(*mut CqHead) -> c_int;
        create_qp = c"ibv_create_qp": fn(*mut Opaque, *mut QpInitAttr) -> *mut QpHead;
        modify_qp = c"ibv_modify_qp": fn(*mut QpHead, *mut QpAttr, c_int) -> c_int;
        destroy_qp = c"ibv_destroy_qp": fn(*mut QpHead) -> c_int;
        status_text = c"ibv_wc_status_str": fn(c_int) -> *const c_char;
    }
    optional {}
}

/// A system error's number.
pub type Errno = i32;

/// What a call that gives a pointer says.
fn pointer<T>(made: *mut T) -> Result<NonNull<T>, Errno> {
    NonNull::new(made).ok_or_else(last_errno)
}

/// What a call that gives a number says: most give the error's number, old ones -1, some providers its negative.
fn number(result: c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        -1 => Err(last_errno()),
        code => Err(code.abs()),
    }
}

fn last_errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The open library.
pub struct Verbs {
    functions: Functions,
    library: LoadedLibrary,
}

impl Verbs {
    pub fn open() -> Result<Verbs, Failure> {
        let library = Library::open(LIBRARY, Scope::Local)?;
        let functions = Functions::load(&library)?;
        let library = library.describe(functions.devices as *const c_void);
        Ok(Verbs { functions, library })
    }

    pub fn library(&self) -> &LoadedLibrary {
        &self.library
    }

    /// Every device that has a provider and a node.
    pub fn devices(&self) -> Result<Devices<'_>, Errno> {
        let mut count = 0;
        // SAFETY: gives a list of `count` devices, or null with errno set.
        let list = pointer(unsafe { (self.functions.devices)(&raw mut count) })?;
        Ok(Devices { verbs: self, list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn status(&self, status: c_int) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.functions.status_text)(status) };
        if text.is_null() {
            return "unknown status".to_owned();
        }
        // SAFETY: a constant string of the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// The list of devices.
pub struct Devices<'v> {
    verbs: &'v Verbs,
    list: NonNull<*mut DeviceHead>,
    count: usize,
}

impl Devices<'_> {
    pub fn iter(&self) -> impl Iterator<Item = Device<'_>> {
        (0..self.count).filter_map(|at| {
            // SAFETY: the list has `count` entries until it is freed.
            let raw = NonNull::new(unsafe { *self.list.as_ptr().add(at) })?;
            Some(Device { verbs: self.verbs, raw, list: PhantomData })
        })
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: came from its counterpart; devices borrow from this value, and none of them is left.
        unsafe { (self.verbs.functions.free_devices)(self.list.as_ptr()) };
    }
}

/// A device of a list.
#[derive(Clone, Copy)]
pub struct Device<'l> {
    verbs: &'l Verbs,
    raw: NonNull<DeviceHead>,
    list: PhantomData<&'l ()>,
}

/// How a device says that it talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Infiniband,
    Iwarp,
    Other,
}

impl<'l> Device<'l> {
    fn head(&self) -> &DeviceHead {
        // SAFETY: the device lives as long as its list.
        unsafe { self.raw.as_ref() }
    }

    pub fn name(&self) -> String {
        text(&self.head().name)
    }

    /// As `uverbs0`.
    pub fn node(&self) -> String {
        text(&self.head().dev_name)
    }

    pub fn transport(&self) -> Transport {
        match self.head().transport_type {
            number::TRANSPORT_IB => Transport::Infiniband,
            number::TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        }
    }

    pub fn open(&self) -> Result<Context<'l>, Errno> {
        // SAFETY: the device is of a list that lives.
        let raw = pointer(unsafe { (self.verbs.functions.open)(self.raw.as_ptr()) })?;
        Ok(Context { verbs: self.verbs, raw })
    }
}

/// A name that fills its field has no NUL.
fn text(field: &[c_char]) -> String {
    #[allow(clippy::cast_sign_loss)] // a byte, whatever the machine calls it
    let bytes: Vec<u8> = field.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An open device.
pub struct Context<'l> {
    verbs: &'l Verbs,
    raw: NonNull<ContextHead>,
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: open, and what was made of it borrows from it.
        unsafe { (self.verbs.functions.close)(self.raw.as_ptr()) };
    }
}

impl Context<'_> {
    pub fn query_device(&self) -> Result<DeviceAttr, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut attributes: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is of the header's size.
        number(unsafe { (self.verbs.functions.query_device)(self.raw.as_ptr(), &raw mut attributes) })?;
        Ok(attributes)
    }

    pub fn query_port(&self, port: u8) -> Result<PortAttr, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut attributes: RoomyPortAttr = unsafe { std::mem::zeroed() };
        let known = (&raw mut attributes).cast::<PortAttr>();
        // SAFETY: the structure is of the header's size or larger.
        number(unsafe { (self.verbs.functions.query_port)(self.raw.as_ptr(), port, known) })?;
        Ok(attributes.known)
    }

    /// An empty slot is all zero.
    pub fn query_gid(&self, port: u8, index: u32) -> Result<[u8; 16], Errno> {
        let mut gid = RawGid::default();
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: writes one GID.
        number(unsafe { (self.verbs.functions.query_gid)(self.raw.as_ptr(), port, index, &raw mut gid) })?;
        Ok(gid.0)
    }

    pub fn alloc_pd(&self) -> Result<Domain<'_>, Errno> {
        // SAFETY: the context is open.
        let raw = pointer(unsafe { (self.verbs.functions.alloc_pd)(self.raw.as_ptr()) })?;
        Ok(Domain { verbs: self.verbs, raw, context: PhantomData })
    }

    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue<'_>, Errno> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let null = std::ptr::null_mut();
        // SAFETY: the context is open; there is no channel, and vector 0 is there always.
        let raw = pointer(unsafe { (self.verbs.functions.create_cq)(self.raw.as_ptr(), entries, null, null, 0) })?;
        Ok(CompletionQueue { verbs: self.verbs, raw, context: PhantomData })
    }
}

/// A protection domain.
pub struct Domain<'c> {
    verbs: &'c Verbs,
    raw: NonNull<Opaque>,
    context: PhantomData<&'c ()>,
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated, and what was made in it borrows from it.
        unsafe { (self.verbs.functions.dealloc_pd)(self.raw.as_ptr()) };
    }
}

const PAGE: usize = 4096;

impl Domain<'_> {
    /// New memory, zero, that the device may write to.
    pub fn register(&self, bytes: usize) -> Result<Region<'_>, Errno> {
        let layout = Layout::from_size_align(bytes.max(PAGE), PAGE).map_err(|_| libc_enomem())?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(libc_enomem)?;
        let access = number::ACCESS_LOCAL_WRITE | number::ACCESS_REMOTE_WRITE;
        // SAFETY: the memory is this long, and stays until the region is deregistered.
        let made =
            unsafe { (self.verbs.functions.reg_mr)(self.raw.as_ptr(), memory.as_ptr().cast(), layout.size(), access) };
        match pointer(made) {
            Ok(raw) => Ok(Region { verbs: self.verbs, raw, memory, layout, is_lost: false, domain: PhantomData }),
            Err(errno) => {
                // SAFETY: allocated above, and registered nowhere.
                unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
                Err(errno)
            }
        }
    }

    /// A queue pair of type RC, with `depth` places on each side.
    pub fn create_qp<'q>(&'q self, queue: &'q CompletionQueue<'_>, depth: u32) -> Result<QueuePair<'q>, Errno> {
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let mut attributes = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: queue.raw.as_ptr(),
            recv_cq: queue.raw.as_ptr(),
            srq: std::ptr::null_mut(),
            cap,
            qp_type: number::QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are of the same context and live longer than the pair.
        let raw = pointer(unsafe { (self.verbs.functions.create_qp)(self.raw.as_ptr(), &raw mut attributes) })?;
        Ok(QueuePair { verbs: self.verbs, raw, made_of: PhantomData })
    }
}

fn libc_enomem() -> Errno {
    rustix::io::Errno::NOMEM.raw_os_error()
}

/// Memory that the device reads and writes.
pub struct Region<'d> {
    verbs: &'d Verbs,
    raw: NonNull<MemoryRegion>,
    memory: NonNull<u8>,
    layout: Layout,
    /// A batch did not come to its end: the device may still write.
    is_lost: bool,
    domain: PhantomData<&'d ()>,
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // SAFETY: registered once.
        let result = unsafe { (self.verbs.functions.dereg_mr)(self.raw.as_ptr()) };
        // What the device may still write to stays.
        if result == 0 {
            // SAFETY: allocated with this layout, and no longer the device's.
            unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
        }
    }
}

impl Region<'_> {
    /// A part of the memory; `None`: beyond its end, or the device may still write.
    pub fn bytes(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        if self.is_lost {
            return None;
        }
        // SAFETY: initialised memory of this length; batches borrow it exclusively until the device is done with it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }.get_mut(range)
    }

    fn keys(&self) -> (u32, u32) {
        // SAFETY: registered.
        let region = unsafe { self.raw.as_ref() };
        (region.lkey, region.rkey)
    }
}

/// A completion queue.
pub struct CompletionQueue<'c> {
    verbs: &'c Verbs,
    raw: NonNull<CqHead>,
    context: PhantomData<&'c ()>,
}

impl Drop for CompletionQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: created, and queue pairs that use it borrow from it.
        unsafe { (self.verbs.functions.destroy_cq)(self.raw.as_ptr()) };
    }
}

/// Completions that are taken at once.
const COMPLETIONS: usize = 16;

impl CompletionQueue<'_> {
    fn poll(&self) -> Result<Vec<WorkCompletion>, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut completions: [WorkCompletion; COMPLETIONS] = unsafe { std::mem::zeroed() };
        // SAFETY: the queue's context lives as long as the queue.
        let poll = unsafe { (*self.raw.as_ref().context).ops.poll_cq }.ok_or_else(no_such_call)?;
        // SAFETY: there is room for as many completions.
        let count = unsafe { poll(self.raw.as_ptr(), COMPLETIONS as c_int, completions.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => Ok(completions[..count.min(COMPLETIONS)].to_vec()),
            Err(_) => Err(last_errno()),
        }
    }
}

/// The provider left a call out.
fn no_such_call() -> Errno {
    rustix::io::Errno::NOSYS.raw_os_error()
}

/// How a queue pair finds the other one.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub number: u32,
    pub gid: [u8; 16],
    pub lid: u16,
}

/// What both ends of a connection have in common.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub port: u8,
    pub gid_index: u8,
    /// `enum ibv_mtu`
    pub mtu: c_int,
    /// The GID is used: always on Ethernet.
    pub is_global: bool,
    pub first_psn: u32,
    /// 4.096 µs × 2^timeout
    pub timeout: u8,
    pub retries: u8,
}

/// A queue pair.
pub struct QueuePair<'q> {
    verbs: &'q Verbs,
    raw: NonNull<QpHead>,
    made_of: PhantomData<&'q ()>,
}

impl Drop for QueuePair<'_> {
    fn drop(&mut self) {
        // SAFETY: created once.
        unsafe { (self.verbs.functions.destroy_qp)(self.raw.as_ptr()) };
    }
}

impl QueuePair<'_> {
    pub fn number(&self) -> u32 {
        // SAFETY: lives.
        unsafe { self.raw.as_ref() }.qp_num
    }

    fn modify(&self, mut attributes: QpAttr, mask: c_int) -> Result<(), Errno> {
        // SAFETY: the structure is of the header's size, and the mask says what of it is read.
        number(unsafe { (self.verbs.functions.modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask) })
    }

    /// Attributes as NCCL has them (NVIDIA/nccl `src/transport/net_ib/connect.cc`: `ncclIbQpInit`, `ncclIbQpRtr`, `ncclIbQpRts`).
    pub fn to_init(&self, link: &Link) -> Result<(), Errno> {
        let attributes = QpAttr {
            qp_state: number::QPS_INIT,
            port_num: link.port,
            qp_access_flags: u32::try_from(number::ACCESS_REMOTE_WRITE).unwrap_or(0),
            ..QpAttr::default()
        };
        self.modify(attributes, number::QP_STATE | number::QP_PKEY_INDEX | number::QP_PORT | number::QP_ACCESS_FLAGS)
    }

    pub fn to_rtr(&self, link: &Link, other: &Address) -> Result<(), Errno> {
        let route = GlobalRoute {
            dgid: RawGid(other.gid),
            sgid_index: link.gid_index,
            hop_limit: 255,
            ..GlobalRoute::default()
        };
        let attributes = QpAttr {
            qp_state: number::QPS_RTR,
            path_mtu: link.mtu,
            dest_qp_num: other.number,
            rq_psn: link.first_psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ah_attr: AddressAttr {
                grh: if link.is_global { route } else { GlobalRoute::default() },
                is_global: u8::from(link.is_global),
                dlid: other.lid,
                port_num: link.port,
                ..AddressAttr::default()
            },
            ..QpAttr::default()
        };
        let mask = number::QP_STATE
            | number::QP_AV
            | number::QP_PATH_MTU
            | number::QP_DEST_QPN
            | number::QP_RQ_PSN
            | number::QP_MAX_DEST_RD_ATOMIC
            | number::QP_MIN_RNR_TIMER;
        self.modify(attributes, mask)
    }

    pub fn to_rts(&self, link: &Link) -> Result<(), Errno> {
        let attributes = QpAttr {
            qp_state: number::QPS_RTS,
            sq_psn: link.first_psn,
            timeout: link.timeout,
            retry_cnt: link.retries,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        let mask = number::QP_STATE
            | number::QP_SQ_PSN
            | number::QP_TIMEOUT
            | number::QP_RETRY_CNT
            | number::QP_RNR_RETRY
            | number::QP_MAX_QP_RD_ATOMIC;
        self.modify(attributes, mask)
    }

    /// Posts a receive that a write with immediate data takes.
    fn post_recv(&self, id: u64) -> Result<(), Errno> {
        let mut request =
            ReceiveRequest { wr_id: id, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair's context lives as long as the pair.
        let post = unsafe { (*self.raw.as_ref().context).ops.post_recv }.ok_or_else(no_such_call)?;
        // SAFETY: the request is read before the call returns, and names no memory.
        number(unsafe { post(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// # Safety
    /// Both regions must stay, untouched, until the completion.
    unsafe fn post_write(
        &self,
        from: &Region,
        to: &Region,
        place: &Range<usize>,
        id: u64,
        immediate: Option<u32>,
    ) -> Result<(), Errno> {
        let beyond = |region: &Region| region.layout.size() < place.end;
        let Ok(length) = u32::try_from(place.len()) else { return Err(no_such_call()) };
        if beyond(from) || beyond(to) {
            return Err(no_such_call());
        }
        let mut part =
            ScatterGather { addr: from.memory.as_ptr() as u64 + place.start as u64, length, lkey: from.keys().0 };
        let mut request = SendRequest {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: &raw mut part,
            num_sge: 1,
            opcode: if immediate.is_some() { number::WR_RDMA_WRITE_WITH_IMM } else { number::WR_RDMA_WRITE },
            send_flags: number::SEND_SIGNALED,
            imm_data: immediate.unwrap_or(0).to_be_bytes(),
            remote_addr: to.memory.as_ptr() as u64 + place.start as u64,
            rkey: to.keys().1,
            rest: [0; 9],
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair's context lives as long as the pair.
        let post = unsafe { (*self.raw.as_ref().context).ops.post_send }.ok_or_else(no_such_call)?;
        // SAFETY: the request is read before the call returns; the caller keeps the memory.
        number(unsafe { post(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }
}

/// A number of writes at once, each of one place in `from` to the same place in `to`.
pub struct Batch<'b> {
    pub sender: &'b QueuePair<'b>,
    pub receiver: &'b QueuePair<'b>,
    pub queue: &'b CompletionQueue<'b>,
    pub places: &'b [Range<usize>],
    /// Travels with the last write.
    pub immediate: u32,
    pub deadline: Instant,
}

/// Of the receive that the last write of a batch takes.
const RECEIVE_ID: u64 = u64::MAX;

impl Batch<'_> {
    /// Posts all of it and waits until it has arrived: as in NCCL, the last write tells the receiver, which then has what was
    /// written before. Gives the time from the first post on.
    pub fn run(&self, from: &mut Region, to: &mut Region) -> Result<Duration, (Step, StepError)> {
        let done = self.post_and_wait(from, to);
        if done.is_err() {
            from.is_lost = true;
            to.is_lost = true;
        }
        done
    }

    fn post_and_wait(&self, from: &Region, to: &Region) -> Result<Duration, (Step, StepError)> {
        let failed = |step| move |errno| (step, errno_error(errno));
        self.receiver.post_recv(RECEIVE_ID).map_err(failed(Step::PostRecv))?;
        let start = Instant::now();
        for (id, place) in (0..).zip(self.places) {
            let is_last = id + 1 == self.places.len() as u64;
            let immediate = is_last.then_some(self.immediate);
            // SAFETY: `run` has both regions for itself, and gives none back of which a write is not completed.
            unsafe { self.sender.post_write(from, to, place, id, immediate) }.map_err(failed(Step::PostSend))?;
        }
        let mut sent = vec![false; self.places.len()];
        let mut is_received = false;
        while !is_received || sent.contains(&false) {
            let completions = self.queue.poll().map_err(failed(Step::PollCq))?;
            let now = Instant::now();
            if completions.is_empty() && now > self.deadline {
                let after_ms = u64::try_from((now - start).as_millis()).unwrap_or(u64::MAX);
                return Err((Step::PollCq, StepError::Timeout { after_ms }));
            }
            if completions.is_empty() {
                std::thread::yield_now();
            }
            for completion in completions {
                self.take(&completion, &mut sent, &mut is_received).map_err(|error| (Step::PollCq, error))?;
            }
        }
        Ok(start.elapsed())
    }

    fn take(&self, completion: &WorkCompletion, sent: &mut [bool], received: &mut bool) -> Result<(), StepError> {
        if completion.status != number::WC_SUCCESS {
            return Err(StepError::Completion {
                status: completion.status,
                text: self.sender.verbs.status(completion.status),
                vendor_error: completion.vendor_err,
            });
        }
        let is_new = if completion.wr_id == RECEIVE_ID {
            let is_mine = completion.opcode == number::WC_RECV_RDMA_WITH_IMM
                && completion.imm_data == self.immediate.to_be_bytes()
                && completion.qp_num == self.receiver.number();
            is_mine && !std::mem::replace(received, true)
        } else {
            let slot = usize::try_from(completion.wr_id).ok().and_then(|id| sent.get_mut(id));
            slot.is_some_and(|slot| !std::mem::replace(slot, true))
        };
        if is_new {
            return Ok(());
        }
        let WorkCompletion { wr_id, opcode, .. } = completion;
        Err(StepError::UnexpectedCompletion { detail: format!("a completion of id {wr_id}, opcode {opcode}") })
    }
}

/// With the system's words and the name where it is one of those that occur here.
pub fn errno_error(code: Errno) -> StepError {
    use rustix::io::Errno as E;
    let known = [
        (E::PERM, "EPERM"),
        (E::NOENT, "ENOENT"),
        (E::IO, "EIO"),
        (E::NXIO, "ENXIO"),
        (E::AGAIN, "EAGAIN"),
        (E::NOMEM, "ENOMEM"),
        (E::ACCESS, "EACCES"),
        (E::BUSY, "EBUSY"),
        (E::NODEV, "ENODEV"),
        (E::INVAL, "EINVAL"),
        (E::NOSPC, "ENOSPC"),
        (E::NOSYS, "ENOSYS"),
        (E::NODATA, "ENODATA"),
        (E::NETUNREACH, "ENETUNREACH"),
        (E::TIMEDOUT, "ETIMEDOUT"),
        (E::HOSTUNREACH, "EHOSTUNREACH"),
        (E::OPNOTSUPP, "EOPNOTSUPP"),
        (E::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (E::NETDOWN, "ENETDOWN"),
    ];
    let name = known.iter().find(|(errno, _)| errno.raw_os_error() == code).map(|(_, name)| (*name).to_owned());
    let text = io::Error::from_raw_os_error(code).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    StepError::Errno { code, name, text }
}
