module @jit_log_probabilities attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64xf32>, %arg1: tensor<64x64xf32>, %arg2: tensor<192xf32>, %arg3: tensor<192x64xf32>, %arg4: tensor<64xf32>, %arg5: tensor<64xf32>, %arg6: tensor<64xf32>, %arg7: tensor<64x256xf32>, %arg8: tensor<256xf32>, %arg9: tensor<256x64xf32>, %arg10: tensor<64xf32>, %arg11: tensor<64xf32>, %arg12: tensor<64xf32>, %arg13: tensor<64x64xf32>, %arg14: tensor<192xf32>, %arg15: tensor<192x64xf32>, %arg16: tensor<64xf32>, %arg17: tensor<64xf32>, %arg18: tensor<64xf32>, %arg19: tensor<64x256xf32>, %arg20: tensor<256xf32>, %arg21: tensor<256x64xf32>, %arg22: tensor<64xf32>, %arg23: tensor<64xf32>, %arg24: tensor<64xf32>, %arg25: tensor<64xf32>, %arg26: tensor<128x64xf32>, %arg27: tensor<256x64xf32>, %arg28: tensor<2x129xi32>) -> (tensor<2x128xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.slice %arg28 [0:2, 0:128] : (tensor<2x129xi32>) -> tensor<2x128xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x128xi32>
    %2 = stablehlo.compare LT, %0, %1, SIGNED : (tensor<2x128xi32>, tensor<2x128xi32>) -> tensor<2x128xi1>
    %c_0 = stablehlo.constant dense<256> : tensor<i32>
    %3 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x128xi32>
    %4 = stablehlo.add %0, %3 : tensor<2x128xi32>
    %5 = stablehlo.select %2, %4, %0 : tensor<2x128xi1>, tensor<2x128xi32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<2x128xi32>) -> tensor<2x128x1xi32>
    %7 = "stablehlo.gather"(%arg27, %6) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<256x64xf32>, tensor<2x128x1xi32>) -> tensor<2x128x64xf32>
    %8 = stablehlo.broadcast_in_dim %arg26, dims = [1, 2] : (tensor<128x64xf32>) -> tensor<1x128x64xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x128x64xf32>) -> tensor<2x128x64xf32>
    %10 = stablehlo.add %7, %9 : tensor<2x128x64xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_1 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %14 = stablehlo.divide %12, %13 : tensor<2x128x1xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %16 = stablehlo.subtract %10, %15 : tensor<2x128x64xf32>
    %17 = chlo.square %16 : tensor<2x128x64xf32> -> tensor<2x128x64xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %18 = stablehlo.reduce(%17 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_3 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %21 = stablehlo.divide %19, %20 : tensor<2x128x1xf32>
    %22 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %23 = stablehlo.subtract %10, %22 : tensor<2x128x64xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %25 = stablehlo.add %21, %24 : tensor<2x128x1xf32>
    %26 = stablehlo.rsqrt %25 : tensor<2x128x1xf32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %28 = stablehlo.multiply %23, %27 : tensor<2x128x64xf32>
    %29 = stablehlo.broadcast_in_dim %arg5, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %31 = stablehlo.multiply %28, %30 : tensor<2x128x64xf32>
    %32 = stablehlo.broadcast_in_dim %arg4, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %33 = stablehlo.broadcast_in_dim %32, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %34 = stablehlo.add %31, %33 : tensor<2x128x64xf32>
    %35 = stablehlo.reshape %34 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %36 = stablehlo.transpose %arg3, dims = [1, 0] : (tensor<192x64xf32>) -> tensor<64x192xf32>
    %37 = stablehlo.dot_general %35, %36, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x192xf32>) -> tensor<256x192xf32>
    %38 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<192xf32>) -> tensor<1x192xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1] : (tensor<1x192xf32>) -> tensor<256x192xf32>
    %40 = stablehlo.add %37, %39 : tensor<256x192xf32>
    %41 = stablehlo.reshape %40 : (tensor<256x192xf32>) -> tensor<2x128x192xf32>
    %42 = stablehlo.reshape %41 : (tensor<2x128x192xf32>) -> tensor<2x128x4x3x16xf32>
    %43 = stablehlo.transpose %42, dims = [3, 0, 2, 1, 4] : (tensor<2x128x4x3x16xf32>) -> tensor<3x2x4x128x16xf32>
    %44 = stablehlo.slice %43 [0:1, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %45 = stablehlo.reshape %44 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %46 = stablehlo.slice %43 [1:2, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %47 = stablehlo.reshape %46 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %48 = stablehlo.slice %43 [2:3, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %49 = stablehlo.reshape %48 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %cst_5 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %50 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2x4x128x16xf32>
    %51 = stablehlo.multiply %45, %50 : tensor<2x4x128x16xf32>
    %52 = stablehlo.reshape %51 : (tensor<2x4x128x16xf32>) -> tensor<8x128x16xf32>
    %53 = stablehlo.transpose %47, dims = [0, 1, 3, 2] : (tensor<2x4x128x16xf32>) -> tensor<2x4x16x128xf32>
    %cst_6 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x4x16x128xf32>
    %55 = stablehlo.multiply %53, %54 : tensor<2x4x16x128xf32>
    %56 = stablehlo.reshape %55 : (tensor<2x4x16x128xf32>) -> tensor<8x16x128xf32>
    %57 = stablehlo.dot_general %52, %56, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x16xf32>, tensor<8x16x128xf32>) -> tensor<8x128x128xf32>
    %58 = stablehlo.reshape %57 : (tensor<8x128x128xf32>) -> tensor<2x4x128x128xf32>
    %c_7 = stablehlo.constant dense<true> : tensor<i1>
    %59 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %60 = call @tril(%59) : (tensor<128x128xi1>) -> tensor<128x128xi1>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %cst_9 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %61 = call @_where(%60, %c_8, %cst_9) : (tensor<128x128xi1>, tensor<i32>, tensor<f32>) -> tensor<128x128xf32>
    %62 = stablehlo.convert %61 : tensor<128x128xf32>
    %63 = stablehlo.broadcast_in_dim %62, dims = [2, 3] : (tensor<128x128xf32>) -> tensor<1x1x128x128xf32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0, 1, 2, 3] : (tensor<1x1x128x128xf32>) -> tensor<2x4x128x128xf32>
    %65 = stablehlo.add %58, %64 : tensor<2x4x128x128xf32>
    %cst_10 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %66 = stablehlo.reduce(%65 init: %cst_10) applies stablehlo.maximum across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %cst_11 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<2x4x128xf32>
    %68 = stablehlo.maximum %67, %66 : tensor<2x4x128xf32>
    %69 = stablehlo.broadcast_in_dim %68, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %70 = stablehlo.broadcast_in_dim %69, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %71 = stablehlo.subtract %65, %70 : tensor<2x4x128x128xf32>
    %72 = stablehlo.exponential %71 : tensor<2x4x128x128xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %73 = stablehlo.reduce(%72 init: %cst_12) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %74 = stablehlo.broadcast_in_dim %73, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %75 = stablehlo.broadcast_in_dim %74, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %76 = stablehlo.divide %72, %75 : tensor<2x4x128x128xf32>
    %77 = stablehlo.reshape %76 : (tensor<2x4x128x128xf32>) -> tensor<8x128x128xf32>
    %78 = stablehlo.reshape %49 : (tensor<2x4x128x16xf32>) -> tensor<8x128x16xf32>
    %79 = stablehlo.dot_general %77, %78, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xf32>, tensor<8x128x16xf32>) -> tensor<8x128x16xf32>
    %80 = stablehlo.reshape %79 : (tensor<8x128x16xf32>) -> tensor<2x4x128x16xf32>
    %81 = stablehlo.transpose %80, dims = [0, 2, 1, 3] : (tensor<2x4x128x16xf32>) -> tensor<2x128x4x16xf32>
    %82 = stablehlo.reshape %81 : (tensor<2x128x4x16xf32>) -> tensor<2x128x64xf32>
    %83 = stablehlo.reshape %82 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %84 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %85 = stablehlo.dot_general %83, %84, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32>
    %86 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %87 = stablehlo.broadcast_in_dim %86, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<256x64xf32>
    %88 = stablehlo.add %85, %87 : tensor<256x64xf32>
    %89 = stablehlo.reshape %88 : (tensor<256x64xf32>) -> tensor<2x128x64xf32>
    %90 = stablehlo.add %10, %89 : tensor<2x128x64xf32>
    %cst_13 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %91 = stablehlo.reduce(%90 init: %cst_13) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %92 = stablehlo.broadcast_in_dim %91, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_14 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %93 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %94 = stablehlo.divide %92, %93 : tensor<2x128x1xf32>
    %95 = stablehlo.broadcast_in_dim %94, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %96 = stablehlo.subtract %90, %95 : tensor<2x128x64xf32>
    %97 = chlo.square %96 : tensor<2x128x64xf32> -> tensor<2x128x64xf32>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %98 = stablehlo.reduce(%97 init: %cst_15) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %99 = stablehlo.broadcast_in_dim %98, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_16 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %100 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %101 = stablehlo.divide %99, %100 : tensor<2x128x1xf32>
    %102 = stablehlo.broadcast_in_dim %94, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %103 = stablehlo.subtract %90, %102 : tensor<2x128x64xf32>
    %cst_17 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %105 = stablehlo.add %101, %104 : tensor<2x128x1xf32>
    %106 = stablehlo.rsqrt %105 : tensor<2x128x1xf32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %108 = stablehlo.multiply %103, %107 : tensor<2x128x64xf32>
    %109 = stablehlo.broadcast_in_dim %arg11, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %111 = stablehlo.multiply %108, %110 : tensor<2x128x64xf32>
    %112 = stablehlo.broadcast_in_dim %arg10, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %113 = stablehlo.broadcast_in_dim %112, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %114 = stablehlo.add %111, %113 : tensor<2x128x64xf32>
    %115 = stablehlo.reshape %114 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %116 = stablehlo.transpose %arg9, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %117 = stablehlo.dot_general %115, %116, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x256xf32>) -> tensor<256x256xf32>
    %118 = stablehlo.broadcast_in_dim %arg8, dims = [1] : (tensor<256xf32>) -> tensor<1x256xf32>
    %119 = stablehlo.broadcast_in_dim %118, dims = [0, 1] : (tensor<1x256xf32>) -> tensor<256x256xf32>
    %120 = stablehlo.add %117, %119 : tensor<256x256xf32>
    %121 = stablehlo.reshape %120 : (tensor<256x256xf32>) -> tensor<2x128x256xf32>
    %122 = stablehlo.multiply %121, %121 : tensor<2x128x256xf32>
    %123 = stablehlo.multiply %122, %121 : tensor<2x128x256xf32>
    %cst_18 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %124 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %125 = stablehlo.multiply %124, %123 : tensor<2x128x256xf32>
    %126 = stablehlo.add %121, %125 : tensor<2x128x256xf32>
    %cst_19 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %127 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %128 = stablehlo.multiply %127, %126 : tensor<2x128x256xf32>
    %129 = stablehlo.tanh %128 : tensor<2x128x256xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %130 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %131 = stablehlo.add %130, %129 : tensor<2x128x256xf32>
    %cst_21 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %132 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %133 = stablehlo.multiply %132, %131 : tensor<2x128x256xf32>
    %134 = stablehlo.multiply %121, %133 : tensor<2x128x256xf32>
    %135 = stablehlo.reshape %134 : (tensor<2x128x256xf32>) -> tensor<256x256xf32>
    %136 = stablehlo.transpose %arg7, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %137 = stablehlo.dot_general %135, %136, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x256xf32>, tensor<256x64xf32>) -> tensor<256x64xf32>
    %138 = stablehlo.broadcast_in_dim %arg6, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %139 = stablehlo.broadcast_in_dim %138, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<256x64xf32>
    %140 = stablehlo.add %137, %139 : tensor<256x64xf32>
    %141 = stablehlo.reshape %140 : (tensor<256x64xf32>) -> tensor<2x128x64xf32>
    %142 = stablehlo.add %90, %141 : tensor<2x128x64xf32>
    %cst_22 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %143 = stablehlo.reduce(%142 init: %cst_22) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %144 = stablehlo.broadcast_in_dim %143, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_23 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %145 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %146 = stablehlo.divide %144, %145 : tensor<2x128x1xf32>
    %147 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %148 = stablehlo.subtract %142, %147 : tensor<2x128x64xf32>
    %149 = chlo.square %148 : tensor<2x128x64xf32> -> tensor<2x128x64xf32>
    %cst_24 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %150 = stablehlo.reduce(%149 init: %cst_24) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %151 = stablehlo.broadcast_in_dim %150, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_25 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %152 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %153 = stablehlo.divide %151, %152 : tensor<2x128x1xf32>
    %154 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %155 = stablehlo.subtract %142, %154 : tensor<2x128x64xf32>
    %cst_26 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %156 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %157 = stablehlo.add %153, %156 : tensor<2x128x1xf32>
    %158 = stablehlo.rsqrt %157 : tensor<2x128x1xf32>
    %159 = stablehlo.broadcast_in_dim %158, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %160 = stablehlo.multiply %155, %159 : tensor<2x128x64xf32>
    %161 = stablehlo.broadcast_in_dim %arg17, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %162 = stablehlo.broadcast_in_dim %161, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %163 = stablehlo.multiply %160, %162 : tensor<2x128x64xf32>
    %164 = stablehlo.broadcast_in_dim %arg16, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %165 = stablehlo.broadcast_in_dim %164, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %166 = stablehlo.add %163, %165 : tensor<2x128x64xf32>
    %167 = stablehlo.reshape %166 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %168 = stablehlo.transpose %arg15, dims = [1, 0] : (tensor<192x64xf32>) -> tensor<64x192xf32>
    %169 = stablehlo.dot_general %167, %168, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x192xf32>) -> tensor<256x192xf32>
    %170 = stablehlo.broadcast_in_dim %arg14, dims = [1] : (tensor<192xf32>) -> tensor<1x192xf32>
    %171 = stablehlo.broadcast_in_dim %170, dims = [0, 1] : (tensor<1x192xf32>) -> tensor<256x192xf32>
    %172 = stablehlo.add %169, %171 : tensor<256x192xf32>
    %173 = stablehlo.reshape %172 : (tensor<256x192xf32>) -> tensor<2x128x192xf32>
    %174 = stablehlo.reshape %173 : (tensor<2x128x192xf32>) -> tensor<2x128x4x3x16xf32>
    %175 = stablehlo.transpose %174, dims = [3, 0, 2, 1, 4] : (tensor<2x128x4x3x16xf32>) -> tensor<3x2x4x128x16xf32>
    %176 = stablehlo.slice %175 [0:1, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %177 = stablehlo.reshape %176 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %178 = stablehlo.slice %175 [1:2, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %179 = stablehlo.reshape %178 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %180 = stablehlo.slice %175 [2:3, 0:2, 0:4, 0:128, 0:16] : (tensor<3x2x4x128x16xf32>) -> tensor<1x2x4x128x16xf32>
    %181 = stablehlo.reshape %180 : (tensor<1x2x4x128x16xf32>) -> tensor<2x4x128x16xf32>
    %cst_27 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %182 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<2x4x128x16xf32>
    %183 = stablehlo.multiply %177, %182 : tensor<2x4x128x16xf32>
    %184 = stablehlo.reshape %183 : (tensor<2x4x128x16xf32>) -> tensor<8x128x16xf32>
    %185 = stablehlo.transpose %179, dims = [0, 1, 3, 2] : (tensor<2x4x128x16xf32>) -> tensor<2x4x16x128xf32>
    %cst_28 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %186 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<2x4x16x128xf32>
    %187 = stablehlo.multiply %185, %186 : tensor<2x4x16x128xf32>
    %188 = stablehlo.reshape %187 : (tensor<2x4x16x128xf32>) -> tensor<8x16x128xf32>
    %189 = stablehlo.dot_general %184, %188, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x16xf32>, tensor<8x16x128xf32>) -> tensor<8x128x128xf32>
    %190 = stablehlo.reshape %189 : (tensor<8x128x128xf32>) -> tensor<2x4x128x128xf32>
    %c_29 = stablehlo.constant dense<true> : tensor<i1>
    %191 = stablehlo.broadcast_in_dim %c_29, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %192 = call @tril(%191) : (tensor<128x128xi1>) -> tensor<128x128xi1>
    %c_30 = stablehlo.constant dense<0> : tensor<i32>
    %cst_31 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %193 = call @_where(%192, %c_30, %cst_31) : (tensor<128x128xi1>, tensor<i32>, tensor<f32>) -> tensor<128x128xf32>
    %194 = stablehlo.convert %193 : tensor<128x128xf32>
    %195 = stablehlo.broadcast_in_dim %194, dims = [2, 3] : (tensor<128x128xf32>) -> tensor<1x1x128x128xf32>
    %196 = stablehlo.broadcast_in_dim %195, dims = [0, 1, 2, 3] : (tensor<1x1x128x128xf32>) -> tensor<2x4x128x128xf32>
    %197 = stablehlo.add %190, %196 : tensor<2x4x128x128xf32>
    %cst_32 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %198 = stablehlo.reduce(%197 init: %cst_32) applies stablehlo.maximum across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %cst_33 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %199 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<2x4x128xf32>
    %200 = stablehlo.maximum %199, %198 : tensor<2x4x128xf32>
    %201 = stablehlo.broadcast_in_dim %200, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %202 = stablehlo.broadcast_in_dim %201, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %203 = stablehlo.subtract %197, %202 : tensor<2x4x128x128xf32>
    %204 = stablehlo.exponential %203 : tensor<2x4x128x128xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %205 = stablehlo.reduce(%204 init: %cst_34) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %206 = stablehlo.broadcast_in_dim %205, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %207 = stablehlo.broadcast_in_dim %206, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %208 = stablehlo.divide %204, %207 : tensor<2x4x128x128xf32>
    %209 = stablehlo.reshape %208 : (tensor<2x4x128x128xf32>) -> tensor<8x128x128xf32>
    %210 = stablehlo.reshape %181 : (tensor<2x4x128x16xf32>) -> tensor<8x128x16xf32>
    %211 = stablehlo.dot_general %209, %210, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xf32>, tensor<8x128x16xf32>) -> tensor<8x128x16xf32>
    %212 = stablehlo.reshape %211 : (tensor<8x128x16xf32>) -> tensor<2x4x128x16xf32>
    %213 = stablehlo.transpose %212, dims = [0, 2, 1, 3] : (tensor<2x4x128x16xf32>) -> tensor<2x128x4x16xf32>
    %214 = stablehlo.reshape %213 : (tensor<2x128x4x16xf32>) -> tensor<2x128x64xf32>
    %215 = stablehlo.reshape %214 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %216 = stablehlo.transpose %arg13, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %217 = stablehlo.dot_general %215, %216, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32>
    %218 = stablehlo.broadcast_in_dim %arg12, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %219 = stablehlo.broadcast_in_dim %218, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<256x64xf32>
    %220 = stablehlo.add %217, %219 : tensor<256x64xf32>
    %221 = stablehlo.reshape %220 : (tensor<256x64xf32>) -> tensor<2x128x64xf32>
    %222 = stablehlo.add %142, %221 : tensor<2x128x64xf32>
    %cst_35 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %223 = stablehlo.reduce(%222 init: %cst_35) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %224 = stablehlo.broadcast_in_dim %223, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_36 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %225 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %226 = stablehlo.divide %224, %225 : tensor<2x128x1xf32>
    %227 = stablehlo.broadcast_in_dim %226, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %228 = stablehlo.subtract %222, %227 : tensor<2x128x64xf32>
    %229 = chlo.square %228 : tensor<2x128x64xf32> -> tensor<2x128x64xf32>
    %cst_37 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %230 = stablehlo.reduce(%229 init: %cst_37) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %231 = stablehlo.broadcast_in_dim %230, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_38 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %232 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %233 = stablehlo.divide %231, %232 : tensor<2x128x1xf32>
    %234 = stablehlo.broadcast_in_dim %226, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %235 = stablehlo.subtract %222, %234 : tensor<2x128x64xf32>
    %cst_39 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %236 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %237 = stablehlo.add %233, %236 : tensor<2x128x1xf32>
    %238 = stablehlo.rsqrt %237 : tensor<2x128x1xf32>
    %239 = stablehlo.broadcast_in_dim %238, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %240 = stablehlo.multiply %235, %239 : tensor<2x128x64xf32>
    %241 = stablehlo.broadcast_in_dim %arg23, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %242 = stablehlo.broadcast_in_dim %241, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %243 = stablehlo.multiply %240, %242 : tensor<2x128x64xf32>
    %244 = stablehlo.broadcast_in_dim %arg22, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %245 = stablehlo.broadcast_in_dim %244, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %246 = stablehlo.add %243, %245 : tensor<2x128x64xf32>
    %247 = stablehlo.reshape %246 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %248 = stablehlo.transpose %arg21, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %249 = stablehlo.dot_general %247, %248, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x256xf32>) -> tensor<256x256xf32>
    %250 = stablehlo.broadcast_in_dim %arg20, dims = [1] : (tensor<256xf32>) -> tensor<1x256xf32>
    %251 = stablehlo.broadcast_in_dim %250, dims = [0, 1] : (tensor<1x256xf32>) -> tensor<256x256xf32>
    %252 = stablehlo.add %249, %251 : tensor<256x256xf32>
    %253 = stablehlo.reshape %252 : (tensor<256x256xf32>) -> tensor<2x128x256xf32>
    %254 = stablehlo.multiply %253, %253 : tensor<2x128x256xf32>
    %255 = stablehlo.multiply %254, %253 : tensor<2x128x256xf32>
    %cst_40 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %256 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %257 = stablehlo.multiply %256, %255 : tensor<2x128x256xf32>
    %258 = stablehlo.add %253, %257 : tensor<2x128x256xf32>
    %cst_41 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %259 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %260 = stablehlo.multiply %259, %258 : tensor<2x128x256xf32>
    %261 = stablehlo.tanh %260 : tensor<2x128x256xf32>
    %cst_42 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %262 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %263 = stablehlo.add %262, %261 : tensor<2x128x256xf32>
    %cst_43 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %264 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<2x128x256xf32>
    %265 = stablehlo.multiply %264, %263 : tensor<2x128x256xf32>
    %266 = stablehlo.multiply %253, %265 : tensor<2x128x256xf32>
    %267 = stablehlo.reshape %266 : (tensor<2x128x256xf32>) -> tensor<256x256xf32>
    %268 = stablehlo.transpose %arg19, dims = [1, 0] : (tensor<64x256xf32>) -> tensor<256x64xf32>
    %269 = stablehlo.dot_general %267, %268, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x256xf32>, tensor<256x64xf32>) -> tensor<256x64xf32>
    %270 = stablehlo.broadcast_in_dim %arg18, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %271 = stablehlo.broadcast_in_dim %270, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<256x64xf32>
    %272 = stablehlo.add %269, %271 : tensor<256x64xf32>
    %273 = stablehlo.reshape %272 : (tensor<256x64xf32>) -> tensor<2x128x64xf32>
    %274 = stablehlo.add %222, %273 : tensor<2x128x64xf32>
    %cst_44 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %275 = stablehlo.reduce(%274 init: %cst_44) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %276 = stablehlo.broadcast_in_dim %275, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_45 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %277 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %278 = stablehlo.divide %276, %277 : tensor<2x128x1xf32>
    %279 = stablehlo.broadcast_in_dim %278, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %280 = stablehlo.subtract %274, %279 : tensor<2x128x64xf32>
    %281 = chlo.square %280 : tensor<2x128x64xf32> -> tensor<2x128x64xf32>
    %cst_46 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %282 = stablehlo.reduce(%281 init: %cst_46) applies stablehlo.add across dimensions = [2] : (tensor<2x128x64xf32>, tensor<f32>) -> tensor<2x128xf32>
    %283 = stablehlo.broadcast_in_dim %282, dims = [0, 1] : (tensor<2x128xf32>) -> tensor<2x128x1xf32>
    %cst_47 = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %284 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %285 = stablehlo.divide %283, %284 : tensor<2x128x1xf32>
    %286 = stablehlo.broadcast_in_dim %278, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %287 = stablehlo.subtract %274, %286 : tensor<2x128x64xf32>
    %cst_48 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %288 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<2x128x1xf32>
    %289 = stablehlo.add %285, %288 : tensor<2x128x1xf32>
    %290 = stablehlo.rsqrt %289 : tensor<2x128x1xf32>
    %291 = stablehlo.broadcast_in_dim %290, dims = [0, 1, 2] : (tensor<2x128x1xf32>) -> tensor<2x128x64xf32>
    %292 = stablehlo.multiply %287, %291 : tensor<2x128x64xf32>
    %293 = stablehlo.broadcast_in_dim %arg25, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %294 = stablehlo.broadcast_in_dim %293, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %295 = stablehlo.multiply %292, %294 : tensor<2x128x64xf32>
    %296 = stablehlo.broadcast_in_dim %arg24, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %297 = stablehlo.broadcast_in_dim %296, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x128x64xf32>
    %298 = stablehlo.add %295, %297 : tensor<2x128x64xf32>
    %299 = stablehlo.reshape %298 : (tensor<2x128x64xf32>) -> tensor<256x64xf32>
    %300 = stablehlo.transpose %arg27, dims = [1, 0] : (tensor<256x64xf32>) -> tensor<64x256xf32>
    %301 = stablehlo.dot_general %299, %300, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<256x64xf32>, tensor<64x256xf32>) -> tensor<256x256xf32>
    %302 = call @log_softmax(%301) : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %303 = stablehlo.slice %arg28 [0:2, 1:129] : (tensor<2x129xi32>) -> tensor<2x128xi32>
    %304 = stablehlo.reshape %303 : (tensor<2x128xi32>) -> tensor<256x1xi32>
    %305 = call @take_along_axis(%302, %304) : (tensor<256x256xf32>, tensor<256x1xi32>) -> tensor<256x1xf32>
    %306 = stablehlo.reshape %305 : (tensor<256x1xf32>) -> tensor<256xf32>
    %307 = stablehlo.negate %306 : tensor<256xf32>
    %308 = stablehlo.reshape %307 : (tensor<256xf32>) -> tensor<2x128xf32>
    %309 = stablehlo.negate %308 : tensor<2x128xf32>
    return %309 : tensor<2x128xf32>
  }
  func.func private @tril(%arg0: tensor<128x128xi1>) -> tensor<128x128xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<128x128xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<128x128xi32>
    %2 = stablehlo.add %0, %1 : tensor<128x128xi32>
    %3 = stablehlo.iota dim = 1 : tensor<128x128xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<128x128xi1>, tensor<128x128xi1>
    return %6 : tensor<128x128xi1>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<i32>, %arg2: tensor<f32>) -> tensor<128x128xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %2 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
    %3 = stablehlo.select %arg0, %1, %2 : tensor<128x128xi1>, tensor<128x128xf32>
    return %3 : tensor<128x128xf32>
  }
  func.func private @log_softmax(%arg0: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<256x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<256xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<256xf32>) -> tensor<256x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<256x1xf32>) -> tensor<256x256xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<256x256xf32>
    %6 = stablehlo.exponential %5 : tensor<256x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<256x256xf32>, tensor<f32>) -> tensor<256xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<256xf32>) -> tensor<256x1xf32>
    %9 = stablehlo.log %8 : tensor<256x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<256x1xf32>) -> tensor<256x256xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<256x256xf32>
    return %11 : tensor<256x256xf32>
  }
  func.func private @take_along_axis(%arg0: tensor<256x256xf32>, %arg1: tensor<256x1xi32>) -> tensor<256x1xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<256x1xi32>) -> tensor<256x1x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<256x256xf32>, tensor<256x1x1xi32>) -> tensor<256x1xf32>
    return %1 : tensor<256x1xf32>
  }
}
