//! The structures and numbers of rdma-core's `infiniband/verbs.h`, as far as they are used; `tests/verbs_abi.rs` holds
//! [`layout`] to the header.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// Used only through a pointer from the library.
pub(super) type Opaque = c_void;

/// `struct ibv_device`, without what follows `dev_name`.
#[repr(C)]
pub struct DeviceHead {
    pub ops: [*mut Opaque; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
}

/// `struct ibv_context_ops`: the three that are called, at their places among the others.
#[repr(C)]
pub struct ContextOps {
    pub before_poll_cq: [*mut Opaque; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut CqHead, c_int, *mut WorkCompletion) -> c_int>,
    pub before_post_send: [*mut Opaque; 13],
    pub post_send: Option<unsafe extern "C" fn(*mut QpHead, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut QpHead, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int>,
    pub after_post_recv: [*mut Opaque; 5],
}

/// `struct ibv_context`, without what follows `ops`.
#[repr(C)]
pub struct ContextHead {
    pub device: *mut DeviceHead,
    pub ops: ContextOps,
}

/// `struct ibv_mr`
#[repr(C)]
pub struct MemoryRegion {
    pub context: *mut ContextHead,
    pub pd: *mut Opaque,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_cq`, its first field.
#[repr(C)]
pub struct CqHead {
    pub context: *mut ContextHead,
}

/// `struct ibv_qp`, without what follows `qp_num`.
#[repr(C)]
pub struct QpHead {
    pub context: *mut ContextHead,
    pub qp_context: *mut c_void,
    pub pd: *mut Opaque,
    pub send_cq: *mut CqHead,
    pub recv_cq: *mut CqHead,
    pub srq: *mut Opaque,
    pub handle: u32,
    pub qp_num: u32,
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
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    /// `max_qp_rd_atom` to `max_srq_sge`
    pub others: [c_int; 20],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
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
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    port_cap_flags2: u16,
}

/// Room after a [`PortAttr`], for a library newer than this header.
#[repr(C)]
pub(super) struct RoomyPortAttr {
    pub known: PortAttr,
    pub room: [u8; 64],
}

/// `struct ibv_qp_cap`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CqHead,
    pub recv_cq: *mut CqHead,
    pub srq: *mut Opaque,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `union ibv_gid`, which asks for the alignment of a 64-bit number.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct RawGid(pub [u8; 16]);

/// `struct ibv_global_route`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: RawGid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AddressAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AddressAttr,
    pub alt_ah_attr: AddressAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`
#[repr(C)]
pub struct ScatterGather {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`, of whose unions only the parts for an RDMA write are named.
#[repr(C)]
pub struct SendRequest {
    pub wr_id: u64,
    pub next: *mut SendRequest,
    pub sg_list: *mut ScatterGather,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: u32,
    /// In network order.
    pub imm_data: [u8; 4],
    pub remote_addr: u64,
    pub rkey: u32,
    pub rest: [u64; 9],
}

/// `struct ibv_recv_wr`
#[repr(C)]
pub struct ReceiveRequest {
    pub wr_id: u64,
    pub next: *mut ReceiveRequest,
    pub sg_list: *mut ScatterGather,
    pub num_sge: c_int,
}

/// `struct ibv_wc`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WorkCompletion {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: [u8; 4],
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// Numbers of the header.
pub(super) mod number {
    use std::ffi::c_int;

    pub(crate) const TRANSPORT_IB: c_int = 0;
    pub(crate) const TRANSPORT_IWARP: c_int = 1;
    pub(crate) const QPT_RC: c_int = 2;
    pub(crate) const QPS_INIT: c_int = 1;
    pub(crate) const QPS_RTR: c_int = 2;
    pub(crate) const QPS_RTS: c_int = 3;
    pub(crate) const QP_STATE: c_int = 1;
    pub(crate) const QP_ACCESS_FLAGS: c_int = 1 << 3;
    pub(crate) const QP_PKEY_INDEX: c_int = 1 << 4;
    pub(crate) const QP_PORT: c_int = 1 << 5;
    pub(crate) const QP_AV: c_int = 1 << 7;
    pub(crate) const QP_PATH_MTU: c_int = 1 << 8;
    pub(crate) const QP_TIMEOUT: c_int = 1 << 9;
    pub(crate) const QP_RETRY_CNT: c_int = 1 << 10;
    pub(crate) const QP_RNR_RETRY: c_int = 1 << 11;
    pub(crate) const QP_RQ_PSN: c_int = 1 << 12;
    pub(crate) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub(crate) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
    pub(crate) const QP_SQ_PSN: c_int = 1 << 16;
    pub(crate) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(crate) const QP_DEST_QPN: c_int = 1 << 20;
    pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
    pub(crate) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
    pub(crate) const WR_RDMA_WRITE: c_int = 0;
    pub(crate) const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub(crate) const SEND_SIGNALED: u32 = 1 << 1;
    pub(crate) const WC_SUCCESS: c_int = 0;
    pub(crate) const WC_RECV_RDMA_WITH_IMM: c_int = 129;
    pub const WC_RETRY_EXC_ERR: c_int = 12;
    pub const PORT_ACTIVE: c_int = 4;
    pub const LINK_LAYER_INFINIBAND: u8 = 1;
    pub const LINK_LAYER_ETHERNET: u8 = 2;
}

/// This module's assumptions about the header, in C, for the test that compares them.
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
